"""The longest-path pass over a task graph: when every task starts and ends if nothing is random and no link is contended.

    start = max(release of the task before it in its lane, end of every other source + lag) + gap (compute lanes)
    release = start + duration            the lane is free again
    end = release + latency               successors may start

Three ways lead to the same bits, because all only take maxima and sums of the same numbers in the same pairs: a general
loop over all tasks; a loop over compute tasks only, where transfers occupy no link (pure latency); and for many devices
waves of compute tasks that do not depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from schedir.ir.graph import Needs, TaskGraph, Topology

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """What the pass needs of a cost model, in seconds."""

    duration: Floats
    """float64 (num_tasks): how long a task occupies its lane."""
    latency: Floats | None = None
    """float64 (num_tasks): how much later, after the lane is free, successors see the result; None for 0 throughout."""
    gap: float = 0.0
    """Dispatch gap before every task of a compute lane that takes time: what is not modelled is not dispatched either."""

    def gaps(self, num_compute: int) -> Floats:
        """Return the gap before each of the compute tasks, float64 (num_compute)."""
        return np.where(self.duration[:num_compute] > 0, self.gap, 0.0)


@dataclass(frozen=True, slots=True)
class Spans:
    """Times of all tasks, in seconds from the start of the run."""

    start: Floats
    release: Floats
    """When the lane is free again."""
    end: Floats
    """When successors may start: release + latency."""


def evaluate(graph: TaskGraph, times: TaskTimes) -> Spans:
    """Return start, release and end of every task."""
    num_compute = graph.num_compute_tasks
    occupied = times.duration[num_compute:].any()
    delayed = times.latency is not None and times.latency[:num_compute].any()
    if graph.topology.needs is None or graph.edge_lag is not None or occupied or delayed:
        return _evaluate_all(graph, times)
    return _evaluate_compute(graph, graph.topology, graph.topology.needs, times=times)


def _evaluate_all(graph: TaskGraph, times: TaskTimes) -> Spans:
    """Loop over all tasks, for any graph."""
    num_tasks, num_compute = graph.num_tasks, graph.num_compute_tasks
    duration = times.duration.tolist()
    latency = [0.0] * num_tasks if times.latency is None else times.latency.tolist()
    first_edge, source = graph.edge_start.tolist(), graph.edge_source.tolist()
    lag = [0.0] * len(source) if graph.edge_lag is None else graph.edge_lag.tolist()
    heads, gaps = set(graph.lane_start.tolist()), times.gaps(num_compute).tolist()
    start, release, end = [0.0] * num_tasks, [0.0] * num_tasks, [0.0] * num_tasks
    for task in graph.topology.order.tolist():
        ready = 0.0 if task in heads else release[task - 1]
        for edge in range(first_edge[task], first_edge[task + 1]):
            seen = end[source[edge]] + lag[edge]
            if seen > ready:  # noqa: PLR1730 - max() costs three times as much here
                ready = seen
        if task < num_compute:
            ready += gaps[task]
        start[task] = ready
        release[task] = ready + duration[task]
        end[task] = release[task] + latency[task]
    return Spans(np.array(start), np.array(release), np.array(end))


def _evaluate_compute(graph: TaskGraph, topology: Topology, needs: Needs, *, times: TaskTimes) -> Spans:
    """Evaluate compute tasks only; transfers follow from them in array operations."""
    num_compute = graph.num_compute_tasks
    latency = None if times.latency is None else np.append(times.latency, 0.0)
    before = np.arange(-1, num_compute - 1, dtype=np.int32)
    heads = graph.lane_start[: graph.program.num_devices]
    before[heads[heads < num_compute]] = num_compute
    delays = [None if latency is None else latency[through] for through in needs.through]
    if topology.bounds is not None:
        release = _release_by_waves(topology, needs, before, times=times, delays=delays)
    else:
        release = _release_by_loop(topology, needs, before, times=times, delays=delays)
    start = release[before]
    for source, delay in zip(needs.source, delays, strict=True):
        seen = release[source]
        np.maximum(start, seen if delay is None else seen + delay, out=start)
    start += times.gaps(num_compute)
    sent = release[needs.sender]
    release = np.concatenate((release[:-1], sent))
    end = release if latency is None else release + latency[:-1]
    return Spans(np.concatenate((start, sent)), release, end)


def _release_by_loop(
    topology: Topology, needs: Needs, before: NDArray[np.int32], *, times: TaskTimes, delays: list[Floats | None]
) -> Floats:
    """Return the release of every compute task and a 0 behind them, which stands for "no source"."""
    num_compute = len(before)
    duration, previous, gaps = times.duration[:num_compute].tolist(), before.tolist(), times.gaps(num_compute).tolist()
    source = needs.source[0].tolist()
    delay = [0.0] * num_compute if delays[0] is None else delays[0].tolist()
    more = [
        (column.tolist(), [0.0] * num_compute if late is None else late.tolist())
        for column, late in zip(needs.source[1:], delays[1:], strict=True)
    ]
    release = [0.0] * (num_compute + 1)
    assert topology.compute_order is not None
    for task in topology.compute_order.tolist():
        ready = release[previous[task]]
        seen = release[source[task]] + delay[task]
        if seen > ready:  # noqa: PLR1730 - max() costs three times as much here
            ready = seen
        for column, late in more:
            seen = release[column[task]] + late[task]
            if seen > ready:  # noqa: PLR1730 - max() costs three times as much here
                ready = seen
        release[task] = ready + gaps[task] + duration[task]
    return np.array(release)


def _release_by_waves(
    topology: Topology, needs: Needs, before: NDArray[np.int32], *, times: TaskTimes, delays: list[Floats | None]
) -> Floats:
    """Return what `_release_by_loop` returns, a wave of independent tasks at a time, all arrays in the order of the waves."""
    assert topology.bounds is not None
    assert topology.compute_order is not None
    num_compute, order = len(before), topology.compute_order
    place = np.empty(num_compute + 1, np.int32)
    place[order] = np.arange(num_compute, dtype=np.int32)
    place[num_compute] = num_compute
    previous = place[before[order]]
    others = [
        (place[source[order]], None if delay is None else delay[order]) for source, delay in zip(needs.source, delays, strict=True)
    ]
    duration, gaps = times.duration[:num_compute][order], times.gaps(num_compute)[order] if times.gap else None
    release = np.zeros(num_compute + 1)
    for low, high in pairwise(topology.bounds.tolist()):
        ready = release[previous[low:high]]
        for column, delay in others:
            seen = release[column[low:high]]
            if delay is not None:
                seen += delay[low:high]
            np.maximum(ready, seen, out=ready)
        if gaps is not None:
            ready += gaps[low:high]
        np.add(ready, duration[low:high], out=release[low:high])
    return release[place]


def evaluate_samples(
    graph: TaskGraph, duration: Floats, *, latency: Floats | None = None, gap: float = 0.0
) -> tuple[Floats, Floats]:
    """Return (start, end), each float64 (num_tasks, num_samples), for sampled durations of the same shape.

    Durations and latencies of shape (num_tasks, 1) are broadcast. Vectorized over samples, one task after the other.
    """
    num_tasks, num_compute = graph.num_tasks, graph.num_compute_tasks
    num_samples = max(duration.shape[1], 1 if latency is None else latency.shape[1])
    first_edge, source = graph.edge_start.tolist(), graph.edge_source.tolist()
    heads = set(graph.lane_start.tolist())
    start, release = np.zeros((num_tasks, num_samples)), np.zeros((num_tasks, num_samples))
    end = release if latency is None else np.zeros((num_tasks, num_samples))
    for task in graph.topology.order.tolist():
        ready = start[task]
        if task not in heads:
            ready[:] = release[task - 1]
        for edge in range(first_edge[task], first_edge[task + 1]):
            seen = end[source[edge]]
            np.maximum(ready, seen if graph.edge_lag is None else seen + graph.edge_lag[edge], out=ready)
        if gap and task < num_compute:
            ready += np.where(duration[task] > 0, gap, 0.0)
        np.add(ready, duration[task], out=release[task])
        if latency is not None:
            np.add(release[task], latency[task], out=end[task])
    return start, end
