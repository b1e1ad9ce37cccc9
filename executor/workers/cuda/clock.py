"""When tasks really run on GPUs: a pair of events for each, put on the host's clock, which all GPUs share.

An event has a time only relative to another of its GPU. So a GPU is marked now and then: the host's clock is read before and after
the GPU reaches an event on a stream of its own, which bounds the offset of the two clocks as a round trip does (see
`executor.workers.clocks`). Two marks give the drift too.

    host    before ──╮      ╭──▶ after          own clock of a mark: nanoseconds since its event
    GPU              ╰▶ event ╯
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np

from executor.run.clock import UNRECORDED, Times
from executor.run.ring import RingRecorder
from executor.workers.clocks import AlignedClock, Offset, RoundTrip, estimate
from executor.workers.cuda.driver import Event, GpuStream
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience

READINGS = 7
"""Readings of the clocks for one mark."""
MARK_EVERY_S = 1.0
"""How old a mark may be: the times of events are floats of milliseconds, and lose digits over longer spans."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a GPU's clock on the host's."""

    event: Event
    """Where this GPU's clock is 0."""
    offset: Offset
    """What must be added to that clock for the host's, `perf_counter_ns`."""

    def since(self, event: Event) -> float:
        """Return an event's time on this mark's clock, in nanoseconds."""
        return self.event.elapsed_time(event) * 1e6

    def host_time(self, event: Event) -> float:
        """Return when an event soon behind this mark was, in nanoseconds of the host's clock."""
        return self.offset.offset + self.since(event)

    def seen_from(self, other: Mark) -> Offset:
        """Return this mark's offset for another mark's clock."""
        between = other.since(self.event)
        return Offset(self.offset.at + between, self.offset.offset - between, self.offset.bound)


def mark(gpu: Gpu, patience: Patience) -> Mark:
    """Mark a GPU, whatever it is doing."""
    readings = [_read(gpu, patience) for _ in range(READINGS)]
    first = readings[0][0]
    times = [(round(first.elapsed_time(event) * 1e6), before, after) for event, before, after in readings]
    # the GPU's moment lies between both looks at the host's clock: a round trip that took no time on the GPU's own
    trips = [RoundTrip(sent=own, received_there=after, sent_there=before, received=own) for own, before, after in times]
    return Mark(first, estimate(trips))


def _read(gpu: Gpu, patience: Patience) -> tuple[Event, int, int]:
    event = gpu.driver.event(timing=True)
    before = perf_counter_ns()
    gpu.clock.record_event(event)
    patience.await_event(event, f"the clock of {gpu}")
    return event, before, perf_counter_ns()


@dataclass(slots=True)
class _Pair:
    """The events around a task, on the GPU that runs it."""

    gpu: Gpu
    begin: Event
    end: Event
    mark: Mark
    """The GPU's newest when the task began."""
    task: int
    recorded: bool = False


class CudaRecorder(RingRecorder):
    """Start and end of the newest tasks as events on the streams that run them; see `RingRecorder`."""

    def __init__(self, gpus: Sequence[Gpu], size: int, patience: Patience) -> None:
        super().__init__(size)
        self._gpus, self._patience = tuple(gpus), patience
        self._pairs: list[_Pair | None] = [None] * size
        self._marks: list[Mark] = []
        """By GPU, the newest."""
        self._marked_ns = 0
        self._bounds: list[float] = [0.0] * len(self._gpus)
        """By GPU: how far its marks may be off, in seconds."""
        self._here = threading.local()

    def enter(self, gpu: Gpu) -> None:
        """Hear on which GPU the tasks run that this thread begins."""
        self._here.gpu = gpu

    def align_now_and_then(self) -> None:
        """Mark all GPUs if their marks have grown old."""
        if perf_counter_ns() - self._marked_ns > MARK_EVERY_S * 1e9:
            self.align()

    def align(self) -> None:
        """Mark all GPUs: what ran since the marks before lies between two, so their clocks' drift is known."""
        self._marks = [mark(gpu, self._patience) for gpu in self._gpus]
        self._marked_ns = perf_counter_ns()
        self._bounds = [max(old, new.offset.bound * 1e-9) for old, new in zip(self._bounds, self._marks, strict=True)]

    def newest_mark(self, gpu: Gpu) -> Mark:
        """Return the last mark of a GPU."""
        return self._marks[self._gpus.index(gpu)]

    @property
    def bound_s(self) -> float:
        """How far spans of two GPUs may be shifted against each other at most, in seconds; 0 for one GPU."""
        # two clocks may be off in opposite directions: the two worst together
        return sum(sorted(self._bounds)[-2:]) if len(self._gpus) > 1 else 0.0

    def begin(self, task: int) -> None:
        """Put the first event on the compute stream."""
        if task >= 0:
            gpu: Gpu = self._here.gpu
            gpu.compute.record_event(self._pair(task, gpu).begin)

    def finish(self, task: int) -> None:
        """Put the second event on the compute stream."""
        if task >= 0:
            gpu: Gpu = self._here.gpu
            self._end_pair(task, gpu.compute)

    @contextmanager
    def span(self, task: int, gpu: Gpu, stream: GpuStream) -> Iterator[None]:
        """Put the events around what is enqueued meanwhile on one stream of a GPU."""
        if task < 0:
            yield
            return
        stream.record_event(self._pair(task, gpu).begin)
        yield
        self._end_pair(task, stream)

    def _end_pair(self, task: int, stream: GpuStream) -> None:
        pair = self._pairs[self._index(task)]
        assert pair is not None
        stream.record_event(pair.end)
        pair.recorded = True

    def _pair(self, task: int, gpu: Gpu) -> _Pair:
        """Return the events for a task that begins; they belong to one GPU and are used again and again."""
        index, newest = self._index(task), self.newest_mark(gpu)
        pair = self._pairs[index]
        if pair is None or pair.gpu is not gpu:
            event = gpu.driver.event
            pair = self._pairs[index] = _Pair(gpu, event(timing=True), event(timing=True), newest, task)
        pair.mark, pair.task, pair.recorded = newest, task, False
        return pair

    def reset(self) -> None:
        """Forget all times; names may start at 0 again."""
        super().reset()
        for pair in self._pairs:
            if pair is not None:
                pair.recorded = False

    def times_of(self, task: int) -> tuple[int, int]:
        """Return a task's start and end in nanoseconds of the host's clock; UNRECORDED for one that is not done or not kept."""
        pair = self._pairs[self._index(task)]
        if pair is None or pair.task != task or not pair.recorded or not pair.end.query():
            return UNRECORDED, UNRECORDED
        clock = AlignedClock(pair.mark.offset, self.newest_mark(pair.gpu).seen_from(pair.mark))
        own = np.array([round(pair.mark.since(event)) for event in (pair.begin, pair.end)], np.int64)
        start, end = clock.corrected(own)
        return int(start), int(end)

    def times(self) -> tuple[Times, Times]:
        """Return start and end of the tasks 0, 1, …, as many as are kept."""
        pairs = np.array([self.times_of(task) for task in range(len(self._pairs))], np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]
