"""Who trains together: the workers of this process, and what it does with the other processes if there are any.

    train        begin ── pass ── taken ── begin ── pass ── taken … ── merged ── … ── end ── share_state ── close
    Trainer      begin ── step step step … ── taken ── merged ── …                    ── share_state ── close, or failed

Every process calls alike. Where there is only one, sharing is giving back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from executor.model.data import MicroBatch
from executor.run.clock import Recorder, Times
from executor.run.ring import RingRecorder
from executor.workers.base import Workers
from executor.workers.threads import ThreadWorkers
from schedir.ir.graph import TaskGraph

T = TypeVar("T")
ReadTimes = Callable[[], tuple[Times, Times]]
"""Gives the starts and ends of a graph's tasks, UNRECORDED where this process does not know them."""


@dataclass(frozen=True, slots=True)
class PassTimes:
    """When the tasks of a graph started and ended, once."""

    start: Times
    """int64 (num_tasks), in nanoseconds; UNRECORDED where it is not known."""
    end: Times
    about: dict[str, Any]
    """What a timeline says of the workers."""


class Team(Protocol):
    """What a training needs of those that train together."""

    num_processes: int

    def recorder(self, size: int, *, endless: bool) -> Recorder:
        """Return what notes when tasks start and end: of `size` tasks, or of the newest so many of an endless row."""
        ...

    def workers(self, graph: TaskGraph, recorder: Recorder, *, endless: bool) -> Workers:
        """Return the workers for this process's devices, once.

        `endless`: a task comes once, and its ports are made when it is about to; otherwise a graph's tasks come pass after pass,
        and all ports are there before the first.
        """
        ...

    def begin(self) -> None:
        """Hear that the names of tasks start at 0 again, for a pass or behind a drain.

        Raises ArgumentError if another process has said that there is no further pass.
        """
        ...

    def end(self) -> None:
        """Say to the others that this process has no further pass; none waits for another here."""
        ...

    def tell_loss(self, micro_batch: int, part: MicroBatch, loss: Tensor) -> None:
        """Tell the other processes a loss; called on the device that has it."""
        ...

    def hear_loss(self, micro_batch: int, part: MicroBatch) -> Tensor | None:
        """Return a loss that another process has computed; None if there is no other."""
        ...

    def begin_step(self, step: int, *, oldest: int) -> None:
        """Hear that a step is about to be given, counted as `begin` says; losses of those before `oldest` are all heard."""
        ...

    def note_edits(self, changes: Sequence[int]) -> None:
        """Hear how often the caller has changed each stage in place, at rest, since this was last said."""
        ...

    def of_all(self, about: str, value: T) -> list[T]:
        """Return what every process gives, in their order; all must ask for the same."""
        ...

    def by_first(self, about: str, action: Callable[[], T]) -> T:
        """Let the first process do something, and return on all what it gave, or raise RunError if it did."""
        ...

    def share_state(self) -> None:
        """Give every process the newest state of all stages; every device must be idle."""
        ...

    def taken(self, read: ReadTimes) -> PassTimes:
        """Return this process's own times of a pass that has ended; `read` gives them, and is called once they are all there."""
        ...

    def merged(self, about: str, graph: TaskGraph, passes: Sequence[PassTimes]) -> list[PassTimes]:
        """Return what all processes know of some passes on one clock, given this process's own times of them."""
        ...

    def close(self) -> None:
        """End in peace, together."""
        ...

    def failed(self, error: BaseException) -> BaseException:
        """End because of an error; return what this process raises: the error, or the first cause in another process."""
        ...


@contextmanager
def parting(team: Team) -> Iterator[None]:
    """Close a team behind what is done inside; if that fails, tell all processes, and raise the first cause."""
    try:
        yield
        team.close()
    except BaseException as error:
        # an interrupt, too: the other processes must hear of it, or they wait for this one until their time limit
        if (shown := team.failed(error)) is error:
            raise
        raise shown from None


class OneProcess:
    """All devices are this process's; here each is a thread that computes with one core, since they share the cores."""

    num_processes = 1

    def __init__(self, *, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def recorder(self, size: int, *, endless: bool) -> Recorder:
        """Return what reads the host's clock."""
        return RingRecorder(size) if endless else Recorder(size)

    def workers(self, graph: TaskGraph, recorder: Recorder, *, endless: bool) -> Workers:  # noqa: ARG002 - one signature for all
        """Return one thread per device."""
        return ThreadWorkers(graph.program.num_devices, recorder, timeout_s=self.timeout_s, enter=computing_with(1))

    def begin(self) -> None:
        """Do nothing: all ports are here."""

    def end(self) -> None:
        """Do nothing: there is nobody to tell."""

    def tell_loss(self, micro_batch: int, part: MicroBatch, loss: Tensor) -> None:
        """Do nothing: all losses are here."""

    def hear_loss(self, micro_batch: int, part: MicroBatch) -> Tensor | None:  # noqa: ARG002 - one signature for all
        """Return None: all losses are here."""
        return None

    def begin_step(self, step: int, *, oldest: int) -> None:
        """Do nothing: all losses are here."""

    def note_edits(self, changes: Sequence[int]) -> None:
        """Do nothing: whatever he changes, all of it is trained here."""

    def of_all(self, about: str, value: T) -> list[T]:  # noqa: ARG002 - one signature for all
        """Return the one value."""
        return [value]

    def by_first(self, about: str, action: Callable[[], T]) -> T:  # noqa: ARG002 - one signature for all
        """Do it: this is the first process."""
        return action()

    def share_state(self) -> None:
        """Do nothing: all stages are here."""

    def taken(self, read: ReadTimes) -> PassTimes:
        """Return the times as they are: all threads read one clock."""
        return PassTimes(*read(), {"workers": "threads", "clock": 0.0})

    def merged(self, about: str, graph: TaskGraph, passes: Sequence[PassTimes]) -> list[PassTimes]:  # noqa: ARG002 - one signature for all
        """Return the times as they are: this process knows all of them."""
        return list(passes)

    def close(self) -> None:
        """Do nothing: the threads end with the workers."""

    def failed(self, error: BaseException) -> BaseException:
        """Return the error: there is no other process."""
        return error


def computing_with(num_threads: int) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which a worker's thread computes with a number of threads."""

    @contextmanager
    def enter() -> Iterator[None]:
        torch.set_num_threads(num_threads)
        yield

    return enter
