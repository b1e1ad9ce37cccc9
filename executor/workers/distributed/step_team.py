"""The processes of a trainer: they meet once, and train step by step until the trainer is closed."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from executor.model.data import MicroBatch
from executor.model.pipeline import Pipeline
from executor.run.clock import Recorder, Times
from executor.workers.base import Halted, Port, Workers
from executor.workers.distributed.causes import error_of
from executor.workers.distributed.clocks import AlignedClock
from executor.workers.distributed.results import checksum, corrected, merge
from executor.workers.distributed.state import give_state, take_state
from executor.workers.distributed.step_workers import StepWorkers
from executor.workers.distributed.team import ProcessTeam
from executor.workers.ports import Slot
from schedir.errors import ArgumentError, RunError
from schedir.ir.graph import TaskGraph

T = TypeVar("T")
_LOSS = -(2**40)
"""Losses have names below this, and above no other."""


class StepsInProcesses:
    """This process and all others that train the same steps."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, seed: int, timeout_s: float) -> None:  # noqa: PLR0917 - one signature for all
        """Meet the other processes; raise RunError if one does not come, ArgumentError if one would train something else."""
        self._graph, self._pipeline = graph, pipeline
        self._team = ProcessTeam(graph, pipeline, seed=seed, timeout_s=timeout_s)
        self._team.__enter__()
        self._mesh = self._team.mesh
        self._workers: StepWorkers
        self._before = self._team.compare_clocks()
        atexit.register(self._at_exit)

    def workers(self, recorder: Recorder) -> Workers:
        """Return one thread for this process's device, and a lane to every other process."""
        self._workers = StepWorkers(recorder, mesh=self._mesh, threads=self._team.threads(recorder))
        return self._workers

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> Port:
        """Return the port of a transfer that starts or ends here."""
        return self._workers.between(task, name, ends)

    def begin_stretch(self) -> None:
        """Make keys that have not been before: names start at 0 again."""
        self._workers.stretch += 1

    def tell_loss(self, micro_batch: int, part: MicroBatch, loss: Tensor) -> None:
        """Send a loss to all other processes, with a checksum of its data."""
        key = self._workers.key(_LOSS - micro_batch)
        value = loss, checksum([part])
        for member in self._mesh.members:
            if member.number != self._mesh.number:
                self._workers.lane(member.number).send(key, value)

    def hear_loss(self, micro_batch: int, part: MicroBatch) -> Tensor | None:
        """Return a loss, once another process has told it; raise ArgumentError if it was that of other data."""
        stages = self._graph.stage_devices()
        slot = Slot(self._wait, f"the loss of micro-batch {micro_batch}")
        self._workers.inbox.expect(self._workers.key(_LOSS - micro_batch), lambda value, _: slot.put(value))
        try:
            loss, data = slot.take()
        except Halted:
            assert self._mesh.watch.cause is not None
            raise error_of(self._mesh.watch.cause) from None
        if data != checksum([part]):
            raise ArgumentError(
                f"process {self._mesh.number} trains on other data than process {stages[-1][0]}: let every process read the same "
                "mini-batches in the same order (shuffle with a seed)"
            )
        assert isinstance(loss, Tensor)
        return loss

    def _wait(self, arrived: threading.Lock, name: str) -> None:
        self._workers.wait(self._graph.stage_devices()[-1][0], arrived, name)

    def of_all(self, about: str, value: Any) -> list[Any]:
        """Return what every process gives, in their order; raise ArgumentError if one asks for something else."""
        control = self._mesh.control
        found: list[Any] = control.broadcast(control.gather(about, value))
        return found

    def by_first(self, about: str, action: Callable[[], T]) -> T:
        """Let process 0 do something, and return on all what it gave; a RunError of it is raised on all, and they may go on."""
        done: T | None = None
        failure = ""
        if self._mesh.number == 0:
            try:
                done = action()
            except RunError as error:
                failure = str(error)
        told: tuple[T, str] = self.of_all(about, (done, failure))[0]
        if told[1]:
            raise RunError(told[1])
        return told[0]

    def share_state(self) -> None:
        """Give every process the newest state of all stages."""
        number = self._mesh.number
        parts = self.of_all("sharing of weights", give_state(self._graph, self._pipeline, number=number))
        states = {stage: state for part in parts for stage, state in part.items()}
        take_state(self._graph, self._pipeline, states, number=number)

    def merged(self, graph: TaskGraph, start: Times, end: Times) -> tuple[Times, Times, dict[str, Any]]:
        """Return all processes' times on the clock of process 0."""
        self._mesh.flush()
        clock = AlignedClock(self._before, self._team.compare_clocks())
        parts = self.of_all("timeline", (corrected(start, clock), corrected(end, clock), clock))
        merged_start, merged_end, delays = merge([part[:2] for part in parts], graph)
        return merged_start, merged_end, self._team.describe_clocks([part[2] for part in parts], delays)

    def close(self) -> None:
        """End in peace, together."""
        atexit.unregister(self._at_exit)
        self._team.__exit__(None, None, None)

    def failed(self, error: BaseException) -> BaseException:
        """Tell all processes, end all connections, and return what this process raises."""
        atexit.unregister(self._at_exit)
        return self._team.failed(error)

    def _at_exit(self) -> None:
        """Say to the others that this process ends without having closed its trainer."""
        self._team.failed(RunError("the process ended, but its trainer was not closed: use it in a with block"))
