"""The longest-path pass over a task graph: when every task starts and ends if nothing is random and no link is contended.

    start = max(release of the task before it in its lane, end of every other source + lag) + gap (compute lanes)
    release = start + duration            the lane is free again
    end = release + latency               successors may start

Three ways lead to the same bits, because all only take maxima and sums of the same numbers in the same pairs: a general
loop over all tasks; a loop over compute tasks and reductions only, where transfers occupy no link (pure latency); and for many
devices waves of compute tasks that do not depend on each other, where there are no reductions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph_data import GraphData
from schedir.ir.order.sums import Sums
from schedir.ir.order.topology import Topology


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


def evaluate(graph: GraphData, times: TaskTimes) -> Spans:
    """Return start, release and end of every task."""
    num_compute = graph.num_compute_tasks
    transfers = slice(num_compute, num_compute + len(graph.topology.needs.sender))
    occupied = times.duration[transfers].any()
    delayed = times.latency is not None and times.latency[:num_compute].any()
    # a transfer that occupies nothing starts and leaves when its maker ends: then only compute tasks and reductions need the loop
    if graph.edge_lag is not None or occupied or delayed:
        return _evaluate_all(graph, times)
    return _evaluate_compute(graph, times)


def _evaluate_all(graph: GraphData, times: TaskTimes) -> Spans:
    """Loop over all tasks, for any graph."""
    num_tasks, num_compute = graph.num_tasks, graph.num_compute_tasks
    duration = times.duration.tolist()
    latency = [0.0] * num_tasks if times.latency is None else times.latency.tolist()
    first_edge, source = graph.edge_start.tolist(), graph.edge_source.tolist()
    lag = [0.0] * len(source) if graph.edge_lag is None else graph.edge_lag.tolist()
    heads, gaps = set(graph.lane_start.tolist()), times.gaps(num_compute).tolist()
    start, release, end = [0.0] * num_tasks, [0.0] * num_tasks, [0.0] * num_tasks
    for task in graph.topology.order.tolist():
        # the edge between neighbours of a lane is in their numbers
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


def _evaluate_compute(graph: GraphData, times: TaskTimes) -> Spans:
    """Evaluate compute tasks and reductions only; transfers follow from them in array operations."""
    topology, needs = graph.topology, graph.topology.needs
    latency = None if times.latency is None else np.append(times.latency, 0.0)
    delays = [None if latency is None else latency[through.astype(np.intp)] for through in needs.through]
    heads = graph.lane_start[: graph.program.num_devices]
    heads = heads[heads < graph.num_compute_tasks]
    sources = [source.astype(np.intp) for source in needs.source]  # indices of the machine's own width are thrice as fast
    if topology.bounds is None:
        sums = Sums.of(graph, times.duration, times.latency)
        start, release = _by_loop(topology, sources, heads, times=times, delays=delays, sums=sums)
    else:
        start, release = _by_waves(topology, sources, heads, times=times, delays=delays)
    sent = release[needs.sender.astype(np.intp)]
    # reductions come behind the compute tasks in the loop, and behind the transfers in the graph
    start, release = (
        np.concatenate((column[: graph.num_compute_tasks], sent, column[graph.num_compute_tasks :])) for column in (start, release)
    )
    end = release if latency is None else release + latency[:-1]
    return Spans(start, release, end)


def _behind(values: NDArray[Any], heads: Ints, none: float) -> NDArray[Any]:
    """Return for every task the value of the one before it in its lane; `none` for the heads of lanes."""
    shifted = np.empty_like(values)
    shifted[1:] = values[:-1]
    shifted[heads] = none
    return shifted


_Row = tuple[int, int, float, float, int, float]
"""A compute task, the one before it, its gap and seconds, what it waits for and the latency behind that."""


def _by_loop(
    topology: Topology, sources: list[Ints], heads: Ints, *, times: TaskTimes, delays: list[Floats | None], sums: Sums | None
) -> tuple[Floats, Floats]:
    """Return start and release of every compute task, and behind them of every reduction; one after the other."""
    num_compute, order = len(topology.compute_order), topology.compute_order.astype(np.intp)
    before = _behind(np.arange(num_compute), heads, num_compute)
    gaps = times.gaps(num_compute)
    own = (order, before[order], gaps[order], times.duration[order])
    (needed, lates), *more = (
        (source[order].tolist(), [0.0] * num_compute if delay is None else delay[order].tolist())
        for source, delay in zip(sources, delays, strict=True)
    )
    num_sums = 0 if sums is None else len(sums.order)
    release = [0.0] * (num_compute + 1 + num_sums)  # a 0 for what waits for nothing stands between them
    summed = [0.0] * num_sums
    rows = enumerate(zip(*(column.tolist() for column in own), needed, lates, strict=True))
    if sums is not None:
        for number, stretch in zip(sums.order, sums.stretches, strict=True):
            _go_on(islice(rows, stretch), release, more)
            summed[number] = ready = max((release[place] + late for place, late in sums.waits[number]), default=0.0)
            release[num_compute + 1 + number] = ready + sums.duration[number]
    _go_on(rows, release, more)
    released = np.array(release)
    # the maxima of the loop once more, in whole arrays: a second list in the loop would cost more
    start = _behind(released[:num_compute], heads, 0.0)
    for waited, delay_of in zip(sources, delays, strict=True):
        np.maximum(start, released[waited] if delay_of is None else released[waited] + delay_of, out=start)
    return np.append(start + gaps, summed), np.concatenate((released[:num_compute], released[num_compute + 1 :]))


def _go_on(rows: Iterator[tuple[int, _Row]], release: list[float], more: list[tuple[list[int], list[float]]]) -> None:
    """Fill in when the compute tasks of some rows are released; `more` has what else they wait for."""
    for place, (task, previous, gap, seconds, source, late) in rows:
        ready = release[previous]
        seen = release[source] + late
        if seen > ready:  # noqa: PLR1730 - max() costs three times as much here
            ready = seen
        for column, delay in more:
            seen = release[column[place]] + delay[place]
            if seen > ready:  # noqa: PLR1730 - max() costs three times as much here
                ready = seen
        release[task] = ready + gap + seconds


def _by_waves(
    topology: Topology, sources: list[Ints], heads: Ints, *, times: TaskTimes, delays: list[Floats | None]
) -> tuple[Floats, Floats]:
    """Return what `_by_loop` returns, a wave of independent tasks at a time, all arrays in the order of the waves."""
    assert topology.bounds is not None
    num_compute, order = len(topology.compute_order), topology.compute_order.astype(np.intp)
    # in the order of the waves a wave is a slice; the place behind all, where release stays 0, is of what waits for nothing
    place = np.empty(num_compute + 1, np.intp)
    place[order] = np.arange(num_compute)
    place[num_compute] = num_compute
    previous = _behind(place[:-1], heads, num_compute)[order]
    others = [
        (place[source[order]], None if delay is None else delay[order]) for source, delay in zip(sources, delays, strict=True)
    ]
    duration, gaps = times.duration[order], times.gaps(num_compute)[order] if times.gap else None
    start, release = np.empty(num_compute), np.zeros(num_compute + 1)
    for low, high in pairwise(topology.bounds.tolist()):
        begin = release[previous[low:high]]
        for column, delay in others:
            seen = release[column[low:high]]
            if delay is not None:
                seen += delay[low:high]
            np.maximum(begin, seen, out=begin)
        if gaps is not None:
            begin += gaps[low:high]
        start[low:high] = begin
        np.add(begin, duration[low:high], out=release[low:high])
    return start[place[:-1]], release[place[:-1]]


def evaluate_samples(
    graph: GraphData, duration: Floats, *, latency: Floats | None = None, gap: float = 0.0
) -> tuple[Floats, Floats]:
    """Return (start, end), each float64 (num_tasks, num_samples), for sampled durations of the same shape.

    Durations and latencies of shape (num_tasks, 1) are broadcast. Vectorized over samples, one task after the other.
    """
    num_tasks, num_compute = graph.num_tasks, graph.num_compute_tasks
    num_samples = max(duration.shape[1], 1 if latency is None else latency.shape[1])
    first_edge, source = graph.edge_start.tolist(), graph.edge_source.tolist()
    heads = set(graph.lane_start.tolist())
    start, release = np.zeros((num_tasks, num_samples)), np.zeros((num_tasks, num_samples))
    # one array for both without latencies: what is written to release is seen as end
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
