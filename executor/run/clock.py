"""When tasks really start and end: one recorder per run, read by all workers."""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from schedir.ir.arrays import Floats

Times = NDArray[np.int64]
"""int64, in nanoseconds."""

UNRECORDED = -1
"""Stands for a task that has no time yet."""


class Recorder:
    """Start and end of every task in nanoseconds of one clock that all threads of the process share.

    Each entry is written by one thread only, so nothing is locked. Workers whose tasks do not end when the call returns (CUDA
    streams) record events under the same methods, and find out their times when they are asked for.
    """

    def __init__(self, num_tasks: int) -> None:
        # lists: to set an entry of an array takes several times as long, and every task does it twice
        self._start = [UNRECORDED] * num_tasks
        self._end = [UNRECORDED] * num_tasks

    def begin(self, task: int) -> None:
        """Record that a task starts now."""
        self._start[task] = perf_counter_ns()

    def finish(self, task: int) -> None:
        """Record that a task ends now."""
        self._end[task] = perf_counter_ns()

    def finish_at_once(self, task: int) -> None:
        """Record that a task took no time."""
        self._end[task] = self._start[task]

    def record(self, task: int, start: int, end: int) -> None:
        """Record times that follow from others, in nanoseconds of this clock."""
        self._start[task], self._end[task] = start, end

    def reset(self) -> None:
        """Forget all times, before the next pass over the same graph."""
        self._start[:] = [UNRECORDED] * len(self._start)
        self._end[:] = [UNRECORDED] * len(self._end)

    def times(self) -> tuple[Times, Times]:
        """Return start and end of all tasks in nanoseconds of this clock, UNRECORDED where there is none."""
        return np.array(self._start, np.int64), np.array(self._end, np.int64)

    def times_of(self, task: int) -> tuple[int, int]:
        """Return a task's start and end in nanoseconds of this clock, UNRECORDED where there is none."""
        return self._start[task], self._end[task]

    def spans(self) -> tuple[Floats, Floats]:
        """Return start and end of all tasks in seconds from the first start; NaN for a task that was not recorded."""
        return in_seconds(*self.times())


def in_seconds(start: Times, end: Times) -> tuple[Floats, Floats]:
    """Return times in seconds from the first start; NaN for a task that was not recorded."""
    missing = (start == UNRECORDED) | (end == UNRECORDED)
    first = start[~missing].min() if not missing.all() else 0
    return np.where(missing, np.nan, (start - first) * 1e-9), np.where(missing, np.nan, (end - first) * 1e-9)


def now() -> int:
    """Return the present on a recorder's clock, in nanoseconds."""
    return perf_counter_ns()
