"""The processes of a trainer, which trains step by step: this one alone, or one per device.

What `executor.workers.team` is for a whole graph, this is for steps without end. Every process calls the trainer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from torch import Tensor

from executor.model.data import MicroBatch
from executor.model.pipeline import Pipeline
from executor.run.clock import Recorder, Times
from executor.workers.base import Port, Workers
from executor.workers.team import computing_with
from executor.workers.threads import ThreadWorkers
from schedir.ir.graph import TaskGraph

T = TypeVar("T")


class StepTeam(Protocol):
    """What a trainer needs of the processes that train together."""

    def workers(self, recorder: Recorder) -> Workers:
        """Return the workers for this process's devices."""
        ...

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> Port:
        """Return the port of a transfer between two devices, one of them this process's."""
        ...

    def begin_stretch(self) -> None:
        """Hear that the names of tasks start at 0 again."""
        ...

    def tell_loss(self, micro_batch: int, part: MicroBatch, loss: Tensor) -> None:
        """Tell the other processes a loss; called on the device that has it."""
        ...

    def hear_loss(self, micro_batch: int, part: MicroBatch) -> Tensor | None:
        """Return a loss that another process has computed; None if there is no other."""
        ...

    def of_all(self, about: str, value: Any) -> list[Any]:
        """Return what every process gives, in their order; all must ask for the same."""
        ...

    def by_first(self, about: str, action: Callable[[], T]) -> T:
        """Let the first process do something, and return on all what it gave, or raise RunError if it did."""
        ...

    def share_state(self) -> None:
        """Give every process the newest state of all stages; every device must be idle."""
        ...

    def merged(self, graph: TaskGraph, start: Times, end: Times) -> tuple[Times, Times, dict[str, Any]]:
        """Return all processes' times of the tasks of a graph on one clock, and what a timeline says about it."""
        ...

    def close(self) -> None:
        """End in peace, together."""
        ...

    def failed(self, error: BaseException) -> BaseException:
        """End because of an error; return what this process raises: the error, or the first cause in another process."""
        ...


MakeStepTeam = Callable[[TaskGraph, Pipeline, int, float], StepTeam]
"""(graph of the schedule, pipeline, seed, seconds that anybody waits at most) -> team."""


class StepsInOneProcess:
    """All devices are threads of this process."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, seed: int, timeout_s: float) -> None:  # noqa: ARG002, PLR0917 - one signature for all
        self._num_devices, self._timeout_s = graph.program.num_devices, timeout_s
        self._workers: Workers

    def workers(self, recorder: Recorder) -> Workers:
        """Return one thread for every device; each computes with one thread, since the devices share the cores."""
        self._workers = ThreadWorkers(self._num_devices, recorder, timeout_s=self._timeout_s, enter=computing_with(1))
        return self._workers

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> Port:  # noqa: ARG002 - one signature for all
        """Return the port of a transfer."""
        return self._workers.channel(task, name)

    def begin_stretch(self) -> None:
        """Do nothing: nothing is on its way."""

    def tell_loss(self, micro_batch: int, part: MicroBatch, loss: Tensor) -> None:
        """Do nothing: all losses are here."""

    def hear_loss(self, micro_batch: int, part: MicroBatch) -> Tensor | None:  # noqa: ARG002 - one signature for all
        """Return None: all losses are here."""
        return None

    def of_all(self, about: str, value: Any) -> list[Any]:  # noqa: ARG002 - one signature for all
        """Return the one value."""
        return [value]

    def by_first(self, about: str, action: Callable[[], T]) -> T:  # noqa: ARG002 - one signature for all
        """Do it: this is the first process."""
        return action()

    def share_state(self) -> None:
        """Do nothing: all stages are here."""

    def merged(self, graph: TaskGraph, start: Times, end: Times) -> tuple[Times, Times, dict[str, Any]]:  # noqa: ARG002 - one signature for all
        """Return the times as they are."""
        return start, end, {"clock": 0.0}

    def close(self) -> None:
        """Do nothing: the threads end with the workers."""

    def failed(self, error: BaseException) -> BaseException:
        """Return the error: there is no other process."""
        return error
