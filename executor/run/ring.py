"""Times and reads of tasks whose names never end, kept for the newest of them.

Names count up from 0; a task's entry is taken over by the one that stands `size` names behind it. Negative names are for what is
no task of a graph (forwards of an evaluation, a norm over the model): nothing is recorded of them.
"""

from __future__ import annotations

from time import perf_counter_ns

from executor.run.clock import UNRECORDED, Recorder

NOBODY = -1


class RingRecorder(Recorder):
    """Start and end of the newest tasks."""

    def __init__(self, size: int) -> None:
        super().__init__(size + 1)
        self._size = size
        self._names = [NOBODY] * (size + 1)

    def begin(self, task: int) -> None:
        """Record that a task starts now."""
        index = self._index(task)
        self._names[index], self._end[index] = task, UNRECORDED
        self._start[index] = perf_counter_ns()

    def finish(self, task: int) -> None:
        """Record that a task ends now."""
        self._end[self._index(task)] = perf_counter_ns()

    def finish_at_once(self, task: int) -> None:
        """Record that a task took no time."""
        index = self._index(task)
        self._end[index] = self._start[index]

    def record(self, task: int, start: int, end: int) -> None:
        """Record times that follow from others, in nanoseconds of this clock."""
        index = self._index(task)
        self._names[index], self._start[index], self._end[index] = task, start, end

    def reset(self) -> None:
        """Forget all times; names may start at 0 again."""
        super().reset()
        self._names[:] = [NOBODY] * len(self._names)

    def times_of(self, task: int) -> tuple[int, int]:
        """Return a task's start and end in nanoseconds; UNRECORDED for what is not known here, or not any more."""
        index = self._index(task)
        return (self._start[index], self._end[index]) if self._names[index] == task else (UNRECORDED, UNRECORDED)

    def _index(self, task: int) -> int:
        # all negative names share the entry behind the ring, which nobody reads
        return task % self._size if task >= 0 else self._size


class RingLog:
    """What the newest tasks read; each entry is written by one thread only."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._reads: list[list[tuple[int, int, int]]] = [[(NOBODY, -1, 0)] * size for _ in range(2)]
        """By half: (task, version, horizon)."""

    def note(self, task: int, half: int, read: tuple[int, int]) -> None:
        """Note (version, horizon) of what an action read."""
        self._reads[half][task % self._size] = (task, *read)

    def read(self, task: int, half: int = 0) -> tuple[int, int] | None:
        """Return (version, horizon) of what an action read; None if it is not noted, or not any more."""
        name, version, horizon = self._reads[half][task % self._size]
        return (version, horizon) if name == task else None

    def reset(self) -> None:
        """Forget all notes; names may start at 0 again."""
        for reads in self._reads:
            reads[:] = [(NOBODY, -1, 0)] * self._size
