"""What a run takes beyond its longest path, and what its tasks wait for when they could begin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.timeline.timeline import Timeline


def longest_path_s(graph: TaskGraph, duration: Floats) -> float:
    """Return how long a graph takes with these durations in seconds (num_tasks), transfers taken as free."""
    spans = evaluate(graph, TaskTimes(np.where(graph.kind == Kind.TRANSFER, 0.0, duration)))
    return float(spans.end.max() - spans.start.min())


def most_tasks(graph: TaskGraph) -> int:
    """Return how many tasks the device with most of them has."""
    return max(len(graph.lane_range(device)) for device in range(graph.program.num_devices))


def overhead(timeline: Timeline) -> tuple[float, float]:
    """Return what the run takes beyond its longest path, as a fraction, and in seconds by task of the busiest device."""
    path = longest_path_s(timeline.graph, timeline.end - timeline.start)
    return timeline.makespan_s / path - 1.0, (timeline.makespan_s - path) / most_tasks(timeline.graph)


def forward_seconds(graph: TaskGraph, duration: Floats) -> float:
    """Return the median duration of a forward."""
    return float(np.median(duration[graph.kind == Kind.FORWARD]))


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds between the moment at which a task could begin and its start."""

    own: list[float]
    """The device had all that the task takes and did not begin yet: the executor's own work."""
    handed: list[float]
    """The device waited for the value, which another device had made by then: the hand-over."""


def gaps(timeline: Timeline) -> Gaps:
    """Return the gaps before all tasks of a run but each device's first, if it waits for nobody."""
    graph, found = timeline.graph, Gaps([], [])
    for device in range(graph.program.num_devices):
        lane = graph.lane_range(device)
        for task in lane:
            before = float(timeline.end[task - 1]) if task > lane.start else -np.inf
            made = max((float(timeline.end[source]) for source in _makers(graph, task)), default=-np.inf)
            if max(before, made) > -np.inf:
                (found.handed if made > before else found.own).append(float(timeline.start[task]) - max(before, made))
    return found


def _makers(graph: TaskGraph, task: int) -> list[int]:
    """Return the tasks of other devices whose values a task takes or waits for."""
    hand_overs = [source for source in _sources(graph, task) if graph.kind[source] in (Kind.TRANSFER, Kind.REDUCE)]
    return [maker for hand_over in hand_overs for maker in _sources(graph, hand_over)]


def _sources(graph: TaskGraph, task: int) -> list[int]:
    first, last = graph.edge_start[task : task + 2]
    return [int(source) for source in graph.edge_source[first:last]]
