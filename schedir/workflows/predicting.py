"""Predict a training from a profile: many draws of all durations, one of them the prediction, all of them its interval.

A draw decides twice by chance. First it draws the profile anew, as many samples as there are with replacement (the bootstrap): a
profile of a few mini-batches does not know the durations better than that. Then every task draws its own duration from those
samples. The draw whose step is the median is the prediction: a longest path over median durations would be too short, since the
slower of two devices decides more often than the faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schedir.costs.table.pieces import TIMES, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.ir.graph import TaskGraph
from schedir.timeline.metrics.steady import steady_state
from schedir.timeline.timeline import Timeline

SHARE = 0.9
"""Share of the draws that an interval holds."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a figure lies in nine of ten draws."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Take the figure of every draw; there is at least one."""
        low, high = np.quantile(list(values), ((1 - SHARE) / 2, (1 + SHARE) / 2)).tolist()
        return cls(low, high)

    def holds(self, value: float) -> bool:
        """Tell whether a value lies inside."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What is expected of one run of a graph."""

    timeline: Timeline
    """The draw whose step is the lower median."""
    step_s: float
    """Its seconds per mini-batch, in steady state where there is one."""
    bubble_fraction: float
    """Of the same draw."""
    step_interval: Interval
    bubble_interval: Interval

    def note(self) -> dict[str, float]:
        """Return what is written down before the measurement, as plain JSON values."""
        return {
            "seconds_per_mini_batch": self.step_s,
            "seconds_low": self.step_interval.low,
            "seconds_high": self.step_interval.high,
            "bubble_fraction": self.bubble_fraction,
            "bubble_low": self.bubble_interval.low,
            "bubble_high": self.bubble_interval.high,
        }


def predict_training(graph: TaskGraph, costs: TableCosts, *, draws: int, seed: int, cores: int | None = None) -> Prediction:
    """Return the prediction from `draws` draws of seeds `seed`, `seed` + 1, …; the same arguments give the same prediction.

    `cores`: the devices share so many, as `simulate` takes it; None: each has one.
    """
    from simulator import simulate

    rows = []
    for number in range(seed, seed + draws):
        timeline = simulate(graph, drawn_anew(costs, number), seed=number, cores=cores)
        rows.append((*_step_and_bubble(timeline), timeline))
    step, bubble, timeline = sorted(rows, key=lambda row: row[0])[(draws - 1) // 2]
    return Prediction(timeline, step, bubble, Interval.of([row[0] for row in rows]), Interval.of([row[1] for row in rows]))


def _step_and_bubble(timeline: Timeline) -> tuple[float, float]:
    """Return both of a complete timeline as its metrics have them, of the steady state where there is one, in less time."""
    program, compute = timeline.graph.program, slice(0, timeline.graph.num_compute_tasks)
    busy, makespan = float((timeline.end[compute] - timeline.start[compute]).sum()), timeline.makespan_s
    steady = steady_state(timeline, busy)
    if steady is not None:
        return steady.seconds_per_mini_batch, steady.bubble_fraction
    return makespan / program.num_mini_batches, 1.0 - busy / (program.num_devices * makespan) if makespan > 0 else 0.0


def drawn_anew(costs: TableCosts, seed: int) -> TableCosts:
    """Return costs whose samples are drawn with replacement from those that were measured; single numbers stay."""
    generator = np.random.default_rng([seed, len(costs.rows)])
    return replace(costs, rows=tuple(_row_drawn_anew(row, generator) for row in costs.rows))


def _row_drawn_anew(row: PieceCosts, generator: np.random.Generator) -> PieceCosts:
    times = {name: getattr(row, name) for name in TIMES}
    drawn: dict[str, Any] = {
        name: _time_drawn_anew(time, generator) for name, time in times.items() if isinstance(time, WorkTime) and time.samples
    }
    return replace(row, **drawn)


def _time_drawn_anew(time: WorkTime, generator: np.random.Generator) -> WorkTime:
    """Return the time with other samples; the median stays, since a draw is held against it for firsts and other sizes."""
    return replace(time, samples=tuple(generator.choice(time.samples, len(time.samples)).tolist()))
