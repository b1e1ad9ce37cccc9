"""Times of all tasks of a timeline, also of those that were not recorded, so that figures need no special cases.

A measured run may lack spans (an update that was not timed, hand-overs inside one process). Such a task is taken to last no
time: on a compute lane right behind the recorded task before it, a transfer or reduction when the last of its sources ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.errors import ArgumentError
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class SettledTimes:
    """Times in seconds, float64 (num_tasks), without NaN."""

    graph: TaskGraph
    start: Floats
    release: Floats
    """When the task's lane is free again."""
    end: Floats
    first: float
    """First start of a recorded task."""
    last: float
    """Last end of a recorded task."""

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
        return self.last - self.first

    @property
    def compute_seconds(self) -> Floats:
        """Seconds of every compute task, float64 (num_compute_tasks)."""
        compute = slice(0, self.graph.num_compute_tasks)
        return self.end[compute] - self.start[compute]

    def lane_bounds(self) -> tuple[Floats, Floats]:
        """Return first start and last end of every compute lane, in the lane's order; both `first` for an empty lane.

        Tasks that take no time before the first that does (predictions whose cost is not modelled) do not start a lane.
        """
        num_devices = self.graph.program.num_devices
        low, high = self.graph.lane_start[:num_devices], self.graph.lane_start[1 : num_devices + 1]
        #   lane   P P F ──── B ──────── U      P and U take no time: the lane starts with F, and ends with U all the same
        used = low < high
        first, last = np.full(num_devices, self.first), np.full(num_devices, self.first)
        taking_time = np.flatnonzero(self.compute_seconds > 0)
        # by lane the first task at or behind its beginning that takes time; behind its end, the lane has none
        begin = np.append(taking_time, np.iinfo(np.int64).max)[np.searchsorted(taking_time, low)]
        begin = np.where(begin < high, begin, low)
        first[used], last[used] = self.start[begin[used]], self.end[high[used] - 1]
        return first, last


def settle(timeline: Timeline) -> SettledTimes:
    """Fill in the tasks without a span; raise ArgumentError if no task has one."""
    start, end = timeline.start, timeline.end
    missing = np.isnan(start)
    if not missing.any():
        release = _releases(timeline.graph, start, end) if timeline.release is None else timeline.release
        return _settled(timeline.graph, start, release, end=end, recorded=None)
    if missing.all():
        raise ArgumentError(f"timeline of {timeline.graph.program.name} has no spans: record at least one task")
    graph = timeline.graph
    start, end = start.copy(), end.copy()
    # compute lanes first: transfers and reductions are ready when their sources, computed there, end
    _fill_compute_lanes(graph, missing, start, end=end)
    _fill_other_lanes(graph, missing, start, end=end)
    release = _releases(graph, start, end) if timeline.release is None else np.where(missing, end, timeline.release)
    return _settled(graph, start, release, end=end, recorded=~missing)


def _releases(graph: TaskGraph, start: Floats, end: Floats) -> Floats:
    """Return when lanes are free where nobody said: at the end, but before the next transfer of the link starts.

    measured    ├─ transfer ─┬─ latency ─▶│        a receiver knows only when a value arrived; the next transfer tells
                             ├─ the next ─┬ …      how much of that time occupied the link
    """
    behind = np.arange(graph.num_compute_tasks + 1, graph.num_tasks)
    behind = behind[~np.isin(behind, graph.lane_start)]
    # a transfer that starts before the one in front has arrived: the rest of that was latency, which occupies nothing
    early = behind[start[behind] < end[behind - 1]]
    if not len(early):
        return end
    release = end.copy()
    release[early - 1] = np.maximum(start[early], start[early - 1])
    return release


def _settled(graph: TaskGraph, start: Floats, release: Floats, *, end: Floats, recorded: Ints | None) -> SettledTimes:
    first = start.min() if recorded is None else start[recorded].min()
    last = end.max() if recorded is None else end[recorded].max()
    return SettledTimes(graph, start, release, end, float(first), float(last))


def _fill_compute_lanes(graph: TaskGraph, missing: Ints, start: Floats, *, end: Floats) -> None:
    for lane in range(graph.program.num_devices):
        tasks = graph.lane_range(lane)
        low, absent = tasks.start, missing[tasks.start : tasks.stop]
        if not absent.any():
            continue
        present = np.flatnonzero(~absent)
        # a device of which nothing was recorded: at the first start, where it makes nobody wait
        if not len(present):
            start[low : tasks.stop] = end[low : tasks.stop] = np.nanmin(start)
            continue
        before = np.searchsorted(present, np.flatnonzero(absent)) - 1  # recorded tasks in front, less one
        # before -1: nothing is recorded in front, so they go to the first start
        at = low + np.flatnonzero(absent)
        start[at] = np.where(before >= 0, end[low + present[before]], start[low + present[0]])
        end[at] = start[at]


def _fill_other_lanes(graph: TaskGraph, missing: Ints, start: Floats, *, end: Floats) -> None:
    num_compute = graph.num_compute_tasks
    at = num_compute + np.flatnonzero(missing[num_compute:])
    if len(at):
        # one piece of the edges for every task behind the compute lanes: each has a source, so no piece is empty
        ready = np.maximum.reduceat(end[graph.edge_source], graph.edge_start[num_compute:-1])
        start[at] = end[at] = ready[at - num_compute]


def sum_by(index: Ints, seconds: Floats, size: int) -> Floats:
    """Return float64 (size): the sum of `seconds` at every value of `index`."""
    return np.asarray(np.bincount(index, seconds, size), np.float64)
