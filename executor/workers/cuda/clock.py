"""When tasks really run on GPUs: a pair of events for each, put on the host's clock, which all GPUs share.

An event has a time only relative to another of its GPU. So a GPU is marked now and then (`executor.workers.cuda.marks`).
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
from executor.workers.cuda.driver import Event, GpuStream
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.marks import Mark, Trail, mark
from executor.workers.cuda.patience import Patience

MARK_EVERY_S = 1.0
"""How old a mark may be: the times of events are floats of milliseconds, and lose digits over longer spans."""


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
        self._trails = [Trail() for _ in self._gpus]
        """By GPU: its marks."""
        self._marked_ns = 0
        self._bounds: list[float] = [0.0] * len(self._gpus)
        """By GPU: how far its marks may be off, in seconds."""
        self._here = threading.local()
        self._aligning = threading.Lock()

    def enter(self, gpu: Gpu) -> None:
        """Hear on which GPU the tasks run that this thread begins."""
        self._here.gpu = gpu

    def align_now_and_then(self) -> None:
        """Mark all GPUs if their marks have grown old."""
        if perf_counter_ns() - self._marked_ns > MARK_EVERY_S * 1e9:
            self.align()

    def align(self) -> None:
        """Mark all GPUs: what ran since the marks before lies between two, so their clocks' drift is known."""
        with self._aligning:  # the caller's thread, and the one that waits for the workers
            self.note_marks([mark(gpu, self._patience) for gpu in self._gpus])
            self._marked_ns = perf_counter_ns()

    def note_marks(self, marks: Sequence[Mark]) -> None:
        """Take one more mark of every GPU."""
        for trail, new in zip(self._trails, marks, strict=True):
            trail.add(new)
        self._bounds = [max(old, new.offset.bound * 1e-9) for old, new in zip(self._bounds, marks, strict=True)]

    def newest_mark(self, gpu: Gpu) -> Mark:
        """Return the last mark of a GPU."""
        return self._trail(gpu).newest

    def _trail(self, gpu: Gpu) -> Trail:
        return self._trails[self._gpus.index(gpu)]

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
        # of an endless row a place may come to another GPU's task later, and an event stays with the GPU that recorded it first
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
        trail = self._trail(pair.gpu)
        return trail.host_time(pair.mark.own_time(pair.begin)), trail.host_time(pair.mark.own_time(pair.end))

    def times(self) -> tuple[Times, Times]:
        """Return start and end of the tasks 0, 1, …, as many as are kept."""
        pairs = np.array([self.times_of(task) for task in range(len(self._pairs))], np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]
