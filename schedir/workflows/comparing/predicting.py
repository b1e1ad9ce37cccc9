"""Predict a training from a profile: many draws of all durations, one of them the prediction, all of them its interval.

A draw decides twice by chance. First it draws the profile's repeats anew, as many as there are (the bootstrap): a profile of a few
mini-batches does not know the durations better than that. Then every mini-batch draws one of those repeats, and its tasks their
durations from that repeat's samples, so that a slow moment stays one (`schedir.costs.table.sampling`). The draw whose step is the
median is the prediction: a longest path over median durations would be too short, since the slower of two devices decides more
often than the faster. How much the machine differs between profile and run comes on top (`schedir.workflows.comparing.drift`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schedir.costs.table.pieces import TIMES, PieceCosts
from schedir.costs.table.sampling import block_bootstrap
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.timeline.metrics.steady import steady_state
from schedir.timeline.timeline import Timeline
from schedir.workflows.comparing.drift import Drift, DriftSoFar

SHARE = 0.9
"""Share of the draws that an interval holds."""


NONE = np.zeros(0, np.int64)


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
    """Of the draws with drift on top."""
    bubble_interval: Interval
    """Of the draws: drift slows all tasks alike, and changes no bubble."""
    step_draws: Interval
    """Of the draws alone: what the scatter inside the profile explains."""
    drift: Drift
    """What was known of it."""

    def note(self) -> dict[str, float]:
        """Return what is written down before the measurement, as plain JSON values."""
        return {
            "seconds_per_mini_batch": self.step_s,
            "seconds_low": self.step_interval.low,
            "seconds_high": self.step_interval.high,
            "seconds_low_of_draws": self.step_draws.low,
            "seconds_high_of_draws": self.step_draws.high,
            "drift": self.drift.scale,
            "drift_differences": self.drift.differences,
            "bubble_fraction": self.bubble_fraction,
            "bubble_low": self.bubble_interval.low,
            "bubble_high": self.bubble_interval.high,
        }


def predict_training(
    graph: TaskGraph,
    costs: TableCosts,
    *,
    draws: int,
    seed: int,
    cores: int | None = None,
    before: DriftSoFar | None = None,
) -> Prediction:
    """Return the prediction from `draws` draws of seeds `seed`, `seed` + 1, …; the same arguments give the same prediction.

    `cores`: the devices share so many, as `simulate` takes it; None: each has one. `before`: what was predicted and measured on
    this machine, to which the prediction is added; None: nothing is known of its drift, and the interval is that of the draws.
    """
    from simulator import simulate

    rows = []
    for number in range(seed, seed + draws):
        timeline = simulate(graph, drawn_anew(costs, number), seed=number, cores=cores)
        rows.append((*_step_and_bubble(timeline), timeline))
    step, bubble, timeline = sorted(rows, key=lambda row: row[0])[(draws - 1) // 2]
    steps = np.array([row[0] for row in rows])
    drift = _followed(before, graph.program.name, steps=steps)
    return Prediction(
        timeline=timeline,
        step_s=step,
        bubble_fraction=bubble,
        step_interval=_with_drift(steps, drift, seed),
        bubble_interval=Interval.of([row[1] for row in rows]),
        step_draws=Interval.of(steps.tolist()),
        drift=drift,
    )


def _followed(before: DriftSoFar | None, schedule: str, *, steps: Floats) -> Drift:
    """Add the median of a prediction's draws to what is known, and return what is known then."""
    if before is None or not steps.min() > 0:
        return Drift()
    before.follow(schedule, float(np.median(steps)), float(np.log(steps).var()))
    return before.now()


def _with_drift(steps: Floats, drift: Drift, seed: int) -> Interval:
    if not drift.scale:
        return Interval.of(steps.tolist())
    ends = Interval.of(drift.spread(np.log(steps), seed).tolist())
    return Interval(float(np.exp(ends.low)), float(np.exp(ends.high)))


def _step_and_bubble(timeline: Timeline) -> tuple[float, float]:
    """Return both of a complete timeline as its metrics have them, of the steady state where there is one, in less time."""
    program, compute = timeline.graph.program, slice(0, timeline.graph.num_compute_tasks)
    busy, makespan = float((timeline.end[compute] - timeline.start[compute]).sum()), timeline.makespan_s
    steady = steady_state(timeline, busy)
    if steady is not None:
        return steady.seconds_per_mini_batch, steady.bubble_fraction
    return makespan / program.num_mini_batches, 1.0 - busy / (program.num_devices * makespan) if makespan > 0 else 0.0


def drawn_anew(costs: TableCosts, seed: int) -> TableCosts:
    """Return costs whose repeats are drawn with replacement, in blocks, from those that were measured; single numbers stay.

    All kinds and stages draw the same repeats. Samples whose repeats are not known are drawn one by one.
    """
    generator = np.random.default_rng([seed, len(costs.rows)])
    known = sorted({repeat for row in costs.rows for time in _sampled(row).values() for repeat in time.repeats})
    places = block_bootstrap(len(known), (len(known), 1), generator)[:, 0].tolist() if known else []
    chosen = [known[place] for place in places]
    return replace(costs, rows=tuple(_row_drawn_anew(row, chosen, generator) for row in costs.rows))


def _sampled(row: PieceCosts) -> dict[str, WorkTime]:
    times = {name: getattr(row, name) for name in TIMES}
    return {name: time for name, time in times.items() if isinstance(time, WorkTime) and time.samples}


def _row_drawn_anew(row: PieceCosts, chosen: Sequence[int], generator: np.random.Generator) -> PieceCosts:
    drawn: dict[str, Any] = {name: _time_drawn_anew(time, chosen, generator) for name, time in _sampled(row).items()}
    return replace(row, **drawn)


def _time_drawn_anew(time: WorkTime, chosen: Sequence[int], generator: np.random.Generator) -> WorkTime:
    """Return the time with other samples; the median stays, since a draw is held against it for firsts and other sizes."""
    if not time.repeats:
        return replace(time, samples=tuple(generator.choice(time.samples, len(time.samples)).tolist()))
    of_repeat = {repeat: np.flatnonzero(np.equal(time.repeats, repeat)) for repeat in set(time.repeats)}
    picked = [of_repeat.get(repeat, NONE) for repeat in chosen]
    if not any(map(len, picked)):
        return replace(time, repeats=())  # of none of these repeats a sample was kept: all stand for each
    samples = np.array(time.samples)[np.concatenate(picked)]
    numbers = np.repeat(np.arange(len(picked)), [len(places) for places in picked])
    return replace(time, samples=tuple(samples.tolist()), repeats=tuple(numbers.tolist()))
