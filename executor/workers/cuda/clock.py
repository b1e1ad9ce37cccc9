"""When tasks really run on GPUs: a pair of events for each, put on one clock that all GPUs and the host share.

An event has a time only relative to another of its GPU. So an idle GPU is marked at both ends of a pass: the host's clock is read
before and after the GPU reaches an event. Two marks give the offset and the drift of its clock; half the wider of the two
windows bounds the error of what lies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from executor.run.clock import Recorder
from executor.workers.cuda.driver import Event, Stream
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience

Floats = NDArray[np.float64]

MARKS = 7
"""Readings of the clocks at each end; the one with the narrowest window counts."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event, and the window of the host's clock in which its GPU reached it."""

    event: Event
    before: int
    after: int
    """Nanoseconds of `perf_counter_ns`."""

    @property
    def middle(self) -> float:
        return (self.before + self.after) / 2

    @property
    def bound_s(self) -> float:
        """How far the middle may be off, in seconds."""
        return (self.after - self.before) / 2 * 1e-9


def mark(gpu: Gpu, patience: Patience) -> Mark:
    """Mark an idle GPU."""
    return min((_read(gpu, patience) for _ in range(MARKS)), key=lambda one: one.bound_s)


def _read(gpu: Gpu, patience: Patience) -> Mark:
    event = gpu.driver.event(timing=True)
    before = perf_counter_ns()
    gpu.compute.record_event(event)
    patience.await_event(event, f"the clock of {gpu}")
    return Mark(event, before, perf_counter_ns())


@dataclass(slots=True)
class _Pair:
    """The events around a task, on the GPU that runs it."""

    gpu: int
    begin: Event
    end: Event
    recorded: bool = False


class CudaRecorder(Recorder):
    """Start and end of every task as events on the stream that runs it."""

    def __init__(self, gpus: Sequence[Gpu], gpu_of_task: Sequence[int]) -> None:
        """`gpu_of_task` has the number of the GPU whose compute stream runs each task of a compute lane."""
        super().__init__(0)
        self._gpus, self._gpu_of_task = gpus, gpu_of_task
        self._pairs: list[_Pair | None] = [None] * len(gpu_of_task)
        self._first: list[Mark] = []
        self._last: list[Mark] = []

    def begin(self, task: int) -> None:
        """Put the first event on the compute stream."""
        gpu = self._gpus[self._gpu_of_task[task]]
        gpu.compute.record_event(self._pair(task, gpu).begin)

    def finish(self, task: int) -> None:
        """Put the second event on the compute stream."""
        gpu = self._gpus[self._gpu_of_task[task]]
        pair = self._pair(task, gpu)
        gpu.compute.record_event(pair.end)
        pair.recorded = True

    @contextmanager
    def span(self, task: int, gpu: Gpu, stream: Stream) -> Iterator[None]:
        """Put the events around what is enqueued meanwhile on one stream of a GPU."""
        pair = self._pair(task, gpu)
        stream.record_event(pair.begin)
        yield
        stream.record_event(pair.end)
        pair.recorded = True

    def _pair(self, task: int, gpu: Gpu) -> _Pair:
        """Return the events of a task; they belong to one GPU and are used again in every pass."""
        number = self._gpus.index(gpu)
        pair = self._pairs[task]
        if pair is None or pair.gpu != number:
            pair = self._pairs[task] = _Pair(number, gpu.driver.event(timing=True), gpu.driver.event(timing=True))
        return pair

    def reset(self) -> None:
        """Forget all times, before the next pass over the same graph."""
        for pair in self._pairs:
            if pair is not None:
                pair.recorded = False

    def mark_first(self, patience: Patience) -> None:
        """Mark all GPUs before a pass."""
        self._first = [mark(gpu, patience) for gpu in self._gpus]

    def mark_last(self, patience: Patience) -> None:
        """Mark all GPUs behind a pass."""
        self._last = [mark(gpu, patience) for gpu in self._gpus]

    @property
    def bound_s(self) -> float:
        """How far spans of two GPUs may be shifted against each other at most, in seconds; 0 for one GPU."""
        # two clocks may be off in opposite directions: the two worst together
        bounds = [max(first.bound_s, last.bound_s) for first, last in zip(self._first, self._last, strict=True)]
        return sum(sorted(bounds)[-2:]) if len(bounds) > 1 else 0.0

    def spans(self) -> tuple[Floats, Floats]:
        """Return start and end of all tasks in seconds from the first start; NaN for a task that was not recorded."""
        times = np.full((2, len(self._pairs)), np.nan)
        clocks = [_aligned(first, last) for first, last in zip(self._first, self._last, strict=True)]
        for task, pair in enumerate(self._pairs):
            if pair is not None and pair.recorded:
                times[:, task] = [clocks[pair.gpu](event) for event in (pair.begin, pair.end)]
        start, end = times - (np.nanmin(times) if np.isfinite(times).any() else 0.0)
        return start, end


def _aligned(first: Mark, last: Mark) -> Callable[[Event], float]:
    """Return what gives the time of a GPU's event on the host's clock, in seconds."""
    # seconds of the host in a millisecond of the GPU, 1e-3 where there is nothing between the marks
    own = first.event.elapsed_time(last.event)
    rate = (last.middle - first.middle) * 1e-9 / own if own > 0 else 1e-3
    return lambda event: first.middle * 1e-9 + first.event.elapsed_time(event) * rate
