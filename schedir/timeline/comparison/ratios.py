"""Measured against predicted durations: by kind and stage, and what they say about devices that share something."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.timeline.settled import sum_by

SLOWER = 1.1
"""From this factor on a slow-down counts as contention: durations of one stage vary by less (notes: 7 % within a stage)."""

FEWEST = 3
"""Tasks that a median needs."""

TOGETHER = 1.5
"""From so many devices on, on average, tasks are said to compute together."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Durations of one kind of task on one stage."""

    kind: str
    stage: int
    tasks: int
    predicted_s: float
    """Sum over the tasks."""
    measured_s: float
    ratio: float | None
    """measured / predicted; None where the prediction is nothing, or too little for a float."""


def ratios(graph: TaskGraph, tasks: Ints, predicted: Floats, *, measured: Floats) -> tuple[Ratio, ...]:
    """Return a row for every kind and stage of `tasks` (durations in seconds) that takes any time."""
    num_stages = graph.program.num_stages
    cell = graph.kind[tasks].astype(np.int64) * num_stages + graph.stage[tasks]
    size = len(Kind) * num_stages
    count = np.bincount(cell, minlength=size)
    sums = sum_by(cell, predicted, size), sum_by(cell, measured, size)
    rows = []
    for index in np.flatnonzero((sums[0] > 0) | (sums[1] > 0)).tolist():
        mine, theirs = float(sums[0][index]), float(sums[1][index])
        kind, stage = divmod(index, num_stages)
        rows.append(Ratio(Kind(kind).word, stage, int(count[index]), mine, theirs, _ratio(theirs, mine)))
    return tuple(rows)


def _ratio(measured: float, predicted: float) -> float | None:
    # a prediction near the smallest float gives infinity, too, for which JSON has no word
    ratio = measured / predicted if predicted > 0 else math.inf
    return ratio if math.isfinite(ratio) else None


def errors_by_kind(rows: tuple[Ratio, ...]) -> Mapping[str, float]:
    """Return predicted / measured - 1 of the seconds of every kind that was measured."""
    kinds = dict.fromkeys(row.kind for row in rows)
    found = {}
    for kind in kinds:
        predicted = sum(row.predicted_s for row in rows if row.kind == kind)
        measured = sum(row.measured_s for row in rows if row.kind == kind)
        if measured > 0:
            found[kind] = predicted / measured - 1.0
    return found


def contention(kind: Ints, ratio: Floats, together: Floats) -> str | None:
    """Say in one line whether tasks run slower because several devices compute at once; None if nothing shows it.

    Arrays over measured tasks: kind, measured / predicted duration, devices that compute at once (`agreement.concurrency`).
    Tasks that compute alone are held against tasks of the same kind that do not. Where none computes alone, all being slower
    than their costs says it. Updates and predictions are left out: the first have no state yet and take next to no time.
    """
    steady = ~np.isin(kind, (Kind.UPDATE, Kind.PREDICT))
    kind, ratio, together = kind[steady], ratio[steady], together[steady]
    apart = together < TOGETHER
    # kind by kind, since they are not spread alike over crowded and lonely times: start-up is all forwards, drain all backwards
    factors = []
    for value in np.unique(kind).tolist():
        alone, crowded = ratio[(kind == value) & apart], ratio[(kind == value) & ~apart]
        if min(len(alone), len(crowded)) >= FEWEST:
            factors.append((Kind(value), float(np.median(crowded) / np.median(alone)), len(crowded)))
    if factors:
        factor = float(np.average([factor for _, factor, _ in factors], weights=[count for *_, count in factors]))
        return _compared(factor, [f"{name.letter} {each:.2f}" for name, each, _ in factors]) if factor >= SLOWER else None
    # nothing to hold against each other: only if most tasks never compute alone can their costs be what shows it
    if len(ratio) < FEWEST or apart.sum() * 2 > len(ratio):
        return None
    factor = float(np.median(ratio))
    if factor < SLOWER:
        return None
    at_once = f"{float(together.mean()):.1f} devices compute at once"
    return f"contention is likely: tasks take {factor:.2f} times their costs, and {at_once}: {_REMEDY}"


_REMEDY = "measure the costs with all devices at work, or give each device cores of its own"


def _compared(factor: float, kinds: list[str]) -> str:
    slower = f"{factor:.2f} times as long while other devices compute as alone ({', '.join(kinds)})"
    return f"contention: tasks take {slower}: {_REMEDY}"
