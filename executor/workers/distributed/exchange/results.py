"""What each process knows of the times of a graph's tasks, put together on one clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from executor.run.clock import UNRECORDED, Times
from executor.workers.clocks import AlignedClock
from executor.workers.distributed.exchange.flights import Flight, shifts
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """What one process knows."""

    start: Times
    """int64 (num_tasks), on this process's clock; UNRECORDED where another process knows it. Of a reduction: when this process gave
    its share."""
    end: Times
    """Of a transfer: when it arrived; of a reduction: when this process had the total."""
    clock: AlignedClock
    """This process's clock against that of process 0."""

    def moved(self, clock: AlignedClock) -> OwnTimes:
        """Return these times on the clock of process 0, as a comparison of the clocks has it."""
        start, end = (np.where(own == UNRECORDED, own, clock.corrected(own)) for own in (self.start, self.end))
        return OwnTimes(start, end, clock)


def on_one_clock(parts: Sequence[OwnTimes], clocks: Sequence[str]) -> list[OwnTimes]:
    """Return the times of all processes on the clock of process 0, given what each one's clock is called.

    Processes that read one clock are moved alike, by the best of their comparisons: what happens on one host stays as it was.
    """
    best: dict[str, AlignedClock] = {}
    for part, name in sorted(zip(parts, clocks, strict=True), key=lambda pair: pair[0].clock.bound_s):
        best.setdefault(name, part.clock)
    return [part.moved(best[name]) for part, name in zip(parts, clocks, strict=True)]


def merge(parts: Sequence[OwnTimes], graph: TaskGraph) -> tuple[Times, Times, list[int] | None]:
    """Return the start and end of every task that any process knows, all on one clock, and the processes' delays.

    A delay is how many nanoseconds a process's times are moved later, so that no message arrives before it was sent; None: no
    delays do it.
    """
    delays = shifts(_flights(graph, parts), len(parts))
    pairs = list(zip(parts, delays or [0] * len(parts), strict=True))
    # UNRECORDED lies before all times. Of most tasks one process knows the start, of a reduction each the moment of its own share:
    # the reduction begins with the last of them, and ends when the first process has the total
    start = np.max([_delayed(part.start, delay) for part, delay in pairs], axis=0)
    end = _first([_delayed(part.end, delay) for part, delay in pairs])
    return start, np.where((start != UNRECORDED) & (end != UNRECORDED), np.maximum(start, end), end), delays


def _flights(graph: TaskGraph, parts: Sequence[OwnTimes]) -> Iterable[Flight]:
    """Yield all transfers: one process knows when it was sent, another when it arrived."""
    for task in np.flatnonzero(graph.kind == Kind.TRANSFER).tolist():
        lane = graph.lanes[int(np.searchsorted(graph.lane_start, task, side="right")) - 1]
        sent, received = int(parts[lane.device].start[task]), int(parts[lane.peer].end[task])
        if UNRECORDED not in (sent, received):
            yield Flight(lane.device, lane.peer, sent, received)


def _delayed(times: Times, delay: int) -> Times:
    return np.where(times == UNRECORDED, times, times + delay)


def _first(times: Sequence[Times]) -> Times:
    """Return the earliest time that anybody knows."""
    never = np.iinfo(np.int64).max
    earliest = np.min([np.where(own == UNRECORDED, never, own) for own in times], axis=0)
    return np.where(earliest == never, UNRECORDED, earliest)
