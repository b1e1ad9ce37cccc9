"""Why devices are idle: what the next task waited for.

    device 1    F0 ░░░░░░░░░░░░░░░▒▒▒▒▒ B0        ░ dependency: the sender still computes
    device 2       F0 ─────── B0 ─┤               ▒ transfer: from the sender's end until the arrival
    link 2->1                     └─────▶

Before a device's first task it is start_up, behind its last drain. Of every other gap the last thing that the next task waited
for decides: while a transfer (or reduction) that arrived last was queueing or under way the gap is transfer (or reduce); the
time before, and whatever lies behind the arrival, is dependency. The causes sum to the device's idle time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.timeline.settled import SettledTimes, sum_by


@dataclass(frozen=True, slots=True)
class Idle:
    """Seconds in which a device was idle, by cause."""

    start_up: float
    """Before its first task."""
    drain: float
    """Behind its last task."""
    dependency: float
    """Another device still computed what the next task needs (or the device was slow to start it)."""
    transfer: float
    """What the next task needs was queueing for a link or under way."""
    reduce: float
    """Gradients of replicas were being summed, or a number exchanged that all stages decide their updates by."""


def idle_by_cause(settled: SettledTimes) -> tuple[Idle, ...]:
    """Return the idle seconds of every device by cause."""
    graph = settled.graph
    num_devices, num_compute = graph.program.num_devices, graph.num_compute_tasks
    first, last = settled.lane_bounds()
    gap = _gaps(settled, first)
    device = graph.device[:num_compute]
    waiting = np.flatnonzero(gap > 0)
    awaited, under_way = _last_arrival(settled, waiting)
    # of a task that waits for none -1 reads the last task's kind; it does not count, since nothing was under way
    kind = graph.kind[awaited]
    transfer, reduce = (
        sum_by(device[waiting], np.where(kind == cause, under_way, 0.0), num_devices) for cause in (Kind.TRANSFER, Kind.REDUCE)
    )
    dependency = sum_by(device, gap, num_devices) - transfer - reduce
    columns = (first - settled.first, settled.last - last, dependency, transfer, reduce)
    return tuple(Idle(*row) for row in zip(*(column.tolist() for column in columns), strict=True))


def _gaps(settled: SettledTimes, first: Floats) -> Floats:
    """Return the idle seconds before every compute task; 0 up to the first of a device, which starts at `first`."""
    graph, num_compute = settled.graph, settled.graph.num_compute_tasks
    gap = np.zeros(num_compute)
    np.subtract(settled.start[1:num_compute], settled.end[: num_compute - 1], out=gap[1:])
    # the difference to the lane before is no gap, nor is anything up to the first task that takes time
    gap[settled.start[:num_compute] <= first[graph.device[:num_compute]]] = 0.0
    return gap


def _last_arrival(settled: SettledTimes, tasks: Ints) -> tuple[Ints, Floats]:
    """Return for each task the source that ended last (-1 for none) and for how long of the task's gap it was under way."""
    graph = settled.graph
    low, width = graph.edge_start[tasks], graph.edge_start[tasks + 1] - graph.edge_start[tasks]
    awaited, arrival = np.full(len(tasks), -1, np.int64), np.full(len(tasks), -np.inf)
    # the k-th source of every task that has so many, all tasks at a time
    for column in range(int(width.max(initial=0))):
        wide = np.flatnonzero(width > column)
        source = graph.edge_source[low[wide] + column]
        later = settled.end[source] > arrival[wide]
        awaited[wide[later]], arrival[wide[later]] = source[later], settled.end[source[later]]
    #   end of its sources (ready) ├── queueing, under way ──┤ arrival
    #   end of the task before     ├──────────── gap ────────────────┤ start       counted: where both lie
    ready = np.full(len(tasks), np.inf)
    apart = awaited >= graph.num_compute_tasks
    ready[apart] = ready_times(graph, settled.end, awaited[apart])
    # where the source is on a compute lane nothing is under way: ready stays infinite, and the difference below 0
    begin = np.maximum(ready, settled.end[tasks - 1])
    return awaited, np.maximum(np.minimum(arrival, settled.start[tasks]) - begin, 0.0)


def ready_times(graph: TaskGraph, end: Floats, tasks: Ints) -> Floats:
    """Return when the last of the sources of each transfer or reduction ends."""
    ready = end[graph.edge_source[graph.edge_start[tasks]]]
    width = graph.edge_start[tasks + 1] - graph.edge_start[tasks]
    for column in range(1, int(width.max(initial=0))):
        wide = np.flatnonzero(width > column)
        ready[wide] = np.maximum(ready[wide], end[graph.edge_source[graph.edge_start[tasks[wide]] + column]])
    return ready
