"""Run a graph again on the durations of a timeline, by the longest-path pass: what its structure alone would make of them."""

from __future__ import annotations

from schedir.ir.action import Kind
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.timeline.settled import SettledTimes


def times_of(settled: SettledTimes) -> TaskTimes:
    """Return the durations and latencies of a timeline's tasks."""
    # `settle` hands on one array for both where no lane is free before its task ends
    latency = None if settled.release is settled.end else settled.end - settled.release
    return TaskTimes(settled.release - settled.start, latency)


def makespan_of(settled: SettledTimes, times: TaskTimes) -> float:
    """Return the makespan of a timeline's graph on other times."""
    spans = evaluate(settled.graph, times)
    return float(spans.end.max() - spans.start.min())


def recompute_overhead(settled: SettledTimes) -> float:
    """Return by how many seconds recomputation makes the run longer: with its durations, less with R taking no time.

    Both runs are those of the longest-path pass, so that launch gaps of a measured run are not counted as recomputation.
    """
    graph = settled.graph
    recomputed = graph.kind == Kind.RECOMPUTE
    if not recomputed.any():
        return 0.0
    times = times_of(settled)
    duration = times.duration.copy()
    duration[recomputed] = 0.0
    return makespan_of(settled, times) - makespan_of(settled, TaskTimes(duration, times.latency))
