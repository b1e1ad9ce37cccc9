"""What the error of a round is made of: predicted / measured as a product of five factors, each from a run of the graph again.

    S0  predicted step
    S1  the same durations, all times one factor, so that they add up to the measured ones     S0 / S1  the machine's speed
    S2  times a factor of each kind and stage, so that those add up                            S1 / S2  kinds of work
    S3  times a factor of their own for a mini-batch's firsts                                  S2 / S3  first micro-batches
    S4  the measured durations themselves                                                      S3 / S4  scatter, task by task
    S5  measured step                                                                          S4 / S5  structure

Factors are of the mini-batches behind the first, where the steady state is. All runs have the prediction's dispatch gap, so that
structure is what remains: longer gaps, hand-overs, waits that the graph does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.validation.records import Pair, Record
from executor.profiling.gaps import dispatch_gap, dispatch_gaps
from schedir.costs.stage_seconds import SIZED_KINDS, first_tasks
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.timeline.comparison.agreement import concurrency
from schedir.timeline.comparison.ratios import TOGETHER
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.settled import settle
from schedir.timeline.timeline import Source, Timeline

CAUSES = ("machine's speed", "kinds of work", "first micro-batches", "scatter of tasks", "structure")

FEWEST = 3
"""Tasks on either side that a ratio of medians needs."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundCauses:
    """One round taken apart."""

    total: float
    """log(predicted / measured) of the step."""
    parts: Floats
    """float64 (len(CAUSES)): logarithms of the factors, which add up to `total`."""
    gaps_s: tuple[float, float]
    """Mean dispatch gap, predicted and measured."""
    kinds: dict[tuple[Kind, bool], tuple[float, float]]
    """By kind and whether it is a mini-batch's first: seconds predicted and measured, behind the first mini-batch."""
    crowded: dict[Kind, float]
    """By kind: measured / predicted while another device computes, over the same ratio while none does."""


def causes_of(record: Record) -> list[RoundCauses]:
    """Take all rounds of a record apart."""
    return [_taken_apart(record.graph, pair) for pair in record.pairs]


def _taken_apart(graph: TaskGraph, pair: Pair) -> RoundCauses:
    predicted, measured = (_durations(one) for one in (pair.predicted, pair.measured))
    gap = constant_gap(pair.predicted)
    kind, stage, first = _cells(graph)
    everything = np.zeros_like(kind)
    by_stage = kind * graph.program.num_stages + stage
    steps = [step_seconds(pair.predicted)]
    for cells in (everything, by_stage, 2 * by_stage + first):
        factor = _factors(graph, cells, predicted, measured=measured)
        steps.append(_step(graph, predicted * factor[cells], gap))
    steps += [_step(graph, measured, gap), step_seconds(pair.measured)]
    return RoundCauses(
        total=float(np.log(steps[0] / steps[-1])),
        parts=-np.diff(np.log(steps)),
        gaps_s=(gap, dispatch_gap(pair.measured)),
        kinds=_by_kind(graph, predicted, measured=measured),
        crowded=_crowded(graph, pair.measured, measured / np.where(predicted > 0, predicted, np.nan)),
    )


def _durations(timeline: Timeline) -> Floats:
    compute = slice(0, timeline.graph.num_compute_tasks)
    seconds: Floats = (timeline.end - timeline.start)[compute]
    return seconds


def _cells(graph: TaskGraph) -> tuple[Ints, Ints, Ints]:
    compute = slice(0, graph.num_compute_tasks)
    several = np.isin(graph.kind[compute], list(SIZED_KINDS)) & (graph.program.num_micro_batches > 1)
    first = np.isin(np.arange(graph.num_compute_tasks), first_tasks(graph)) & several
    return graph.kind[compute].astype(np.int64), graph.stage[compute].astype(np.int64), first.astype(np.int64)


def _behind_first(graph: TaskGraph) -> NDArray[np.bool_]:
    behind: NDArray[np.bool_] = graph.mini_batch[: graph.num_compute_tasks] > 0
    return behind


def _factors(graph: TaskGraph, cells: Ints, predicted: Floats, *, measured: Floats) -> Floats:
    """Return measured / predicted seconds of every cell, 1 where nothing was predicted."""
    chosen = _behind_first(graph)
    size = int(cells.max()) + 1
    mine, theirs = (np.bincount(cells[chosen], weights=one[chosen], minlength=size) for one in (predicted, measured))
    return np.divide(theirs, mine, out=np.ones(size), where=mine > 0)


def _step(graph: TaskGraph, compute: Floats, gap: float) -> float:
    duration = np.zeros(graph.num_tasks)
    duration[: graph.num_compute_tasks] = compute
    spans = evaluate(graph, TaskTimes(duration, None, gap))
    return step_seconds(Timeline(graph, spans.start, spans.end, Source.SIMULATED))


def constant_gap(predicted: Timeline) -> float:
    """Return the gap that a prediction has before every task that takes time."""
    gaps = dispatch_gaps(predicted)
    return max(0.0, float(np.median(gaps[_durations(predicted) > 0])))


def _by_kind(graph: TaskGraph, predicted: Floats, *, measured: Floats) -> dict[tuple[Kind, bool], tuple[float, float]]:
    kind, _, first = _cells(graph)
    found = {}
    for value, is_first in {*zip(kind.tolist(), first.tolist(), strict=True)}:
        chosen = (kind == value) & (first == is_first) & _behind_first(graph)
        found[Kind(value), bool(is_first)] = float(predicted[chosen].sum()), float(measured[chosen].sum())
    return found


def _crowded(graph: TaskGraph, measured: Timeline, ratio: Floats) -> dict[Kind, float]:
    kind, _, _ = _cells(graph)
    together = concurrency(settle(measured), np.arange(graph.num_compute_tasks)) >= TOGETHER
    found = {}
    for value in np.unique(kind).tolist():
        sides = [ratio[(kind == value) & (together == side) & np.isfinite(ratio)] for side in (True, False)]
        if min(map(len, sides)) >= FEWEST:
            found[Kind(value)] = float(np.median(sides[0]) / np.median(sides[1]))
    return found


def shares(rounds: Sequence[RoundCauses]) -> Floats:
    """Return the share of every cause in the variance of the error, float64 (len(CAUSES)); they add up to 1.

    A cause's covariance with the whole error over the variance of the latter.
    """
    total, parts = np.array([one.total for one in rounds]), np.array([one.parts for one in rounds])
    total, parts = total - total.mean(), parts - parts.mean(axis=0)
    whole = float(total @ total)
    return (total @ parts) / whole if whole > 0 else np.zeros(len(CAUSES))
