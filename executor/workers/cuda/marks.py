"""A GPU's own clock on the host's: moments at which both were read.

The host's clock is read before and after the GPU reaches an event on a stream of its own, which bounds the offset of the two clocks
as a round trip does (see `executor.workers.clocks`). Between two marks the offset is a straight line, so clocks may drift.

    host    before ──╮      ╭──▶ after          own clock of a mark: nanoseconds since its event
    GPU              ╰▶ event ╯

    shift    ╭──────╮              one line over all marks, without a step: what ran in order has times in order, however far the
        ─────╯      ╰──────        marks are off
          mark 0   mark 1   mark 2
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from time import perf_counter_ns

import numpy as np
from numpy.typing import NDArray

from executor.workers.clocks import Offset, RoundTrip, estimate
from executor.workers.cuda.driver import Event
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience

READINGS = 7
"""Readings of the clocks for one mark."""
KEPT = 1024
"""Marks of a GPU: more seconds than the spans of the newest steps go back."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a GPU's clock on the host's."""

    event: Event
    """Where this mark's clock is 0."""
    offset: Offset
    """What must be added to that clock for the host's, `perf_counter_ns`."""
    began: float = 0.0
    """When that was on the clock of the GPU's first mark, in nanoseconds."""

    def since(self, event: Event) -> float:
        """Return an event's time on this mark's clock, in nanoseconds."""
        return self.event.elapsed_time(event) * 1e6

    def own_time(self, event: Event) -> float:
        """Return an event's time on the clock of the GPU's first mark, in nanoseconds."""
        return self.began + self.since(event)

    def host_time(self, event: Event) -> float:
        """Return when an event soon behind this mark was, in nanoseconds of the host's clock."""
        return self.offset.offset + self.since(event)


class Trail:
    """The marks of one GPU."""

    def __init__(self) -> None:
        self._marks: deque[Mark] = deque(maxlen=KEPT)
        self._at: NDArray[np.float64] = np.zeros(0)
        """By mark: its moment on the clock of the first."""
        self._shift: NDArray[np.float64] = np.zeros(0)
        """By mark: what must be added there for the host's clock."""

    @property
    def newest(self) -> Mark:
        """The last mark."""
        return self._marks[-1]

    def add(self, mark: Mark) -> None:
        """Take a mark behind all others."""
        # from mark to mark: times of events are floats of milliseconds, which lose digits over longer spans
        began = self.newest.own_time(mark.event) if self._marks else 0.0
        self._marks.append(replace(mark, began=began))
        self._at = np.array([each.began + each.offset.at for each in self._marks])
        self._shift = np.array([each.offset.offset - each.began for each in self._marks])

    def host_time(self, own: float) -> int:
        """Return a time on the clock of the first mark in nanoseconds of the host's clock."""
        return round(own) + round(float(np.interp(own, self._at, self._shift)))


def mark(gpu: Gpu, patience: Patience) -> Mark:
    """Mark a GPU, whatever it is doing."""
    readings = [_read(gpu, patience) for _ in range(READINGS)]
    first = readings[0][0]
    times = [(round(first.elapsed_time(event) * 1e6), before, after) for event, before, after in readings]
    # the GPU's moment lies between both looks at the host's clock: a round trip that took no time on the GPU's own
    trips = [RoundTrip(sent=own, received_there=after, sent_there=before, received=own) for own, before, after in times]
    return Mark(first, estimate(trips))


def _read(gpu: Gpu, patience: Patience) -> tuple[Event, int, int]:
    # on a stream of its own that never has work, so the GPU comes to it at once, however much is enqueued on the others
    event = gpu.driver.event(timing=True)
    before = perf_counter_ns()
    gpu.clock.record_event(event)
    patience.await_event(event, f"the clock of {gpu}")
    return event, before, perf_counter_ns()
