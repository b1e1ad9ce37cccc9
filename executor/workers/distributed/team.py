"""One process per device: they meet, connect, train, put their results together, and end together, in peace or not."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

from torch import Tensor

from executor.model.data import MicroBatch
from executor.model.pipeline import Pipeline
from executor.run.checksums import checksum
from executor.run.clock import Recorder
from executor.run.ring import RingRecorder
from executor.workers.base import Halted, Workers
from executor.workers.clocks import SAME_CLOCK, AlignedClock, Offset, estimate
from executor.workers.distributed.exchange.edits import Edits, check_alike
from executor.workers.distributed.exchange.results import OwnTimes, merge, on_one_clock
from executor.workers.distributed.exchange.settings import check_settings, setting_of
from executor.workers.distributed.exchange.state import give_state, take_state
from executor.workers.distributed.meeting import start
from executor.workers.distributed.mesh import Mesh
from executor.workers.distributed.own_gpu import GpuRecorder, GpuRingRecorder, check_apart, own_gpu
from executor.workers.distributed.watching.causes import cause_of, error_of, is_interrupt, same_mistake
from executor.workers.distributed.workers import SHARES, DistributedWorkers, gpu_lanes
from executor.workers.environment import place
from executor.workers.ports import Slot
from executor.workers.team import PassTimes, ReadTimes, computing_with
from executor.workers.threads import ThreadWorkers
from schedir.errors import ArgumentError, RefusedError, RunError
from schedir.ir.graph import TaskGraph

T = TypeVar("T")
_LOSS = -(2**40)
"""Losses have names below this, and above no other."""


class ProcessTeam:
    """This process and all others that were started with it."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, *, seed: int, timeout_s: float) -> None:
        """Meet the other processes.

        Raises ArgumentError if the graph does not fit their number, or if one would train something else, RunError if one does not
        come.
        """
        self._place, self._timeout_s = place(), timeout_s
        self._graph, self._pipeline = graph, pipeline
        self.num_processes = self._place.count
        _check_count(graph.program.num_devices, self._place.count)
        self._gpu = own_gpu(pipeline.stages, timeout_s=timeout_s)
        run = start.own_run()
        identity = "" if self._gpu is None else self._gpu.identity
        members = start.meet(run, setting_of(graph, pipeline, seed), timeout_s=timeout_s, gpu=identity)
        self._mesh = Mesh(run, members, timeout_s=timeout_s, enter=nullcontext if self._gpu is None else self._gpu.lane)
        self._edits = Edits(len(pipeline.stages))
        self._workers: DistributedWorkers
        try:
            self._mesh.watch.start()
            # before anything is connected: what was built apart is named here, not found out by messages of another shape
            check_settings(members)
            check_apart(members)
            self._mesh.open()
            if self._gpu is not None:
                self._mesh.connect_gpus(gpu_lanes(graph), self._gpu.home.device)
            self._before, self._put_together = self._compare_clocks(), False
        except BaseException as error:  # noqa: BLE001 - whatever it is, the others must hear of it
            raise self.failed(error) from None
        atexit.register(self._at_exit)

    def recorder(self, size: int, *, endless: bool) -> Recorder:
        """Return what reads this process's clock."""
        if self._gpu is not None:
            return (GpuRingRecorder if endless else GpuRecorder)(size, self._gpu)
        return RingRecorder(size) if endless else Recorder(size)

    def workers(self, graph: TaskGraph, recorder: Recorder, *, endless: bool) -> Workers:
        """Return one thread for this process's device, and lanes to the others."""
        enter = computing_with(int(os.environ.get("OMP_NUM_THREADS", "1"))) if self._gpu is None else self._gpu.computing
        threads = ThreadWorkers(1, recorder, timeout_s=self._timeout_s, enter=enter, first_device=self._place.number)
        describe: Callable[[int], str] = "task {} of its run".format if endless else graph.label
        self._mesh.control.listen(threads.fail)
        self._workers = DistributedWorkers(
            recorder, mesh=self._mesh, threads=threads, describe=describe, endless=endless, gpu=self._gpu
        )
        return self._workers

    def begin(self) -> None:
        """Make keys that have not been before; compare the clocks, if times were put together since they were compared."""
        self._workers.stretch += 1
        if self._put_together:
            self._before, self._put_together = self._compare_clocks(), False
        self._mesh.control.begin_pass()

    def end(self) -> None:
        """Say that there is no further pass, so that nobody waits for this process in one."""
        self._mesh.control.end_passes()

    def tell_loss(self, micro_batch: int, part: MicroBatch, loss: Tensor) -> None:
        """Send a loss to all other processes, with a checksum of its data, and how often the model was changed from outside."""
        key = self._workers.key(_LOSS - micro_batch)
        value = loss.cpu(), checksum([part]), self._edits.of_step(self._step(micro_batch))
        for member in self._mesh.members:
            if member.number != self._mesh.number:
                self._workers.lane(member.number, SHARES).send(key, value)

    def hear_loss(self, micro_batch: int, part: MicroBatch) -> Tensor | None:
        """Return a loss, once another process has told it; raise ArgumentError if it was that of other data, or another model."""
        stages = self._graph.stage_devices()
        slot = Slot(self._wait, f"the loss of micro-batch {micro_batch}")
        self._workers.inbox.expect(self._workers.key(_LOSS - micro_batch), lambda value, _: slot.put(value))
        try:
            loss, data, edits = slot.take()
        except Halted:
            assert self._mesh.watch.cause is not None
            raise error_of(self._mesh.watch.cause) from None
        if data != checksum([part]):
            raise ArgumentError(
                f"process {self._mesh.number} trains on other data than process {stages[-1][0]}: let every process read the same "
                "mini-batches in the same order (shuffle with a seed)"
            )
        check_alike(self._edits.of_step(self._step(micro_batch)), edits, number=self._mesh.number, other=stages[-1][0])
        assert isinstance(loss, Tensor)
        return loss

    def _step(self, micro_batch: int) -> int:
        return micro_batch // self._graph.program.num_micro_batches

    def begin_step(self, step: int, *, oldest: int) -> None:
        """Keep for the losses of a step what the caller has changed before it."""
        self._edits.begin_step(step, oldest=oldest)

    def note_edits(self, changes: Sequence[int]) -> None:
        """Count what the caller changes in the model."""
        self._edits.add(changes)

    def _wait(self, arrived: threading.Lock, name: str) -> None:
        self._workers.wait(self._graph.stage_devices()[-1][0], arrived, name)

    def of_all(self, about: str, value: T) -> list[T]:
        """Return what every process gives, in their order; raise ArgumentError if one asks for something else."""
        control = self._mesh.control
        found: list[T] = control.broadcast(control.gather(about, value))
        return found

    def by_first(self, about: str, action: Callable[[], T]) -> T:
        """Let process 0 do something, and return on all what it gave.

        A RunError or RefusedError of it is raised on all, and they may go on: none is left waiting for the answer.
        """
        done: T | None = None
        kind: type[RunError | RefusedError] = RunError
        failure = ""
        if self._mesh.number == 0:
            try:
                done = action()
            except (RunError, RefusedError) as error:
                kind = RefusedError if isinstance(error, RefusedError) else RunError
                failure = str(error)
        result, kind, failure = self.of_all(about, (done, kind, failure))[0]
        if failure:
            raise kind(failure)
        return result  # type: ignore[return-value]  # what `action` gave on process 0

    def share_state(self) -> None:
        """Give every process the newest state of all stages; raise ArgumentError if that would undo a change of the caller's."""
        number = self._mesh.number
        state = give_state(self._graph, self._pipeline, number=number)
        parts = self.of_all("sharing of weights", (self._edits.counts, state))
        for other, (counts, _) in enumerate(parts):
            check_alike(parts[0][0], counts, number=0, other=other)
        states = {stage: state for _, part in parts for stage, state in part.items()}
        take_state(self._graph, self._pipeline, states, number=number)

    def taken(self, read: ReadTimes) -> PassTimes:
        """Return the times on this process's own clock, once all that it sends is on its way."""
        self._mesh.flush()
        return PassTimes(*read(), {})

    def merged(self, about: str, graph: TaskGraph, passes: Sequence[PassTimes]) -> list[PassTimes]:
        """Return all processes' times on the clock of process 0."""
        # two comparisons, one on either side of the passes: between them the offset is a straight line, so drift is taken out too
        clock, self._put_together = AlignedClock(self._before, self._compare_clocks()), True
        own = [OwnTimes(times.start, times.end, clock) for times in passes]
        return [self._merged(parts, graph) for parts in zip(*self.of_all(about, own), strict=True)]

    def _merged(self, parts: Sequence[OwnTimes], graph: TaskGraph) -> PassTimes:
        """Return a pass, of which each process knows a part."""
        aligned = on_one_clock(parts, [member.clock for member in self._mesh.members])
        start, end, delays = merge(aligned, graph)
        return PassTimes(start, end, self._about([part.clock for part in aligned], delays))

    def _about(self, clocks: Sequence[AlignedClock], delays: Sequence[int] | None) -> dict[str, Any]:
        """Return who took part, and how far the clocks can be trusted."""
        processes = [
            {
                "process": member.number,
                "host": member.host,
                "pid": member.pid,
                "offset_s": clock.offset_s,
                "drift": clock.drift,
                "bound_s": clock.bound_s,
                "delay_s": (delays or [0] * len(clocks))[member.number] * 1e-9,
            }
            for member, clock in zip(self._mesh.members, clocks, strict=True)
        ]
        bound = max(clock.bound_s for clock in clocks)
        return {"workers": "distributed", "clock": bound, "processes": processes, "causal": delays is not None}

    def _compare_clocks(self) -> Offset:
        """Return this clock's offset from that of process 0; nothing is measured where both are the same."""
        members = self._mesh.members
        if members[self._place.number].clock == members[0].clock:
            return SAME_CLOCK
        return estimate(self._mesh.control.round_trips())

    def close(self) -> None:
        """End in peace, together."""
        self._mesh.close()
        atexit.unregister(self._at_exit)

    def failed(self, error: BaseException) -> BaseException:
        """Agree with the others on the first cause, end all connections, and return what this process raises.

        An interrupt may be what torchrun's agent sends because another process has died: that is what is shown then.
        """
        atexit.unregister(self._at_exit)
        mesh, number = self._mesh, self._place.number
        interrupted = isinstance(error, KeyboardInterrupt)
        if interrupted:
            mesh.watch.hear_out()
        own = cause_of(error, number, str(mesh.members[number]), waited_for=mesh.watch.position.waits_for)
        cause = mesh.watch.cause or mesh.watch.report(own)
        # only behind the report: a connection that breaks before a cause is known looks to the others like a death without a word
        mesh.break_off()
        if cause.process == number and cause.message == own.message:
            if own.waited_for >= 0:
                error.add_note(cause.text)  # it says what the others were at
            return error
        if interrupted and not is_interrupt(cause):
            return error_of(cause)
        if not isinstance(error, Exception) or same_mistake(error, cause):
            return error
        return error_of(cause)

    def _at_exit(self) -> None:
        """Say to the others that this process ends without having closed its trainer."""
        self.failed(RunError("the process ended, but its trainer was not closed: use it in a with block"))


def _check_count(devices: int, processes: int) -> None:
    if devices != processes:
        raise ArgumentError(
            f"the program has {devices} devices, but {processes} processes were started: start one process per device "
            f"(torchrun --nproc-per-node {devices}), or build the program for {processes} devices"
        )
