"""The figures of a record, and those over all records: errors, intervals, orders of schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from benchmarks.validation.baselines import without_communication
from benchmarks.validation.records import IntervalOf, Pair, Record
from schedir.timeline.comparison.noise_floor import noise_floor
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one configuration."""

    record: Record
    predicted_s: float
    """Median over the rounds of the predicted seconds per mini-batch in steady state."""
    measured_s: float
    error: float
    """predicted / measured - 1 of the medians."""
    bubble_error: float
    """Points: median predicted less median measured, in steady state."""
    predicted_bubble: float
    measured_bubble: float
    noise: float
    """How far a round is from the median of the others."""
    inside: int
    """Rounds whose measured step lies in the 90 % interval that was predicted for it, the one that knows most."""
    no_bubble_error: float
    no_communication_error: float
    formula_error: float

    @property
    def rounds(self) -> int:
        return len(self.record.pairs)


def row_of(record: Record) -> Row:
    """Return the figures of one record."""
    pairs = record.pairs
    predicted = _median(pairs, lambda pair: step_seconds(pair.predicted))
    measured = _median(pairs, lambda pair: step_seconds(pair.measured))
    predicted_bubble = _median(pairs, lambda pair: _bubble(pair.predicted))
    measured_bubble = _median(pairs, lambda pair: _bubble(pair.measured))
    runs = [pair.measured for pair in pairs]
    return Row(
        record=record,
        predicted_s=predicted,
        measured_s=measured,
        error=predicted / measured - 1,
        bubble_error=predicted_bubble - measured_bubble,
        predicted_bubble=predicted_bubble,
        measured_bubble=measured_bubble,
        noise=noise_floor(runs, [step_seconds(run) for run in runs]) or 0.0,
        inside=sum(pair.inside(min(pair.expected.intervals, key=list(IntervalOf).index)) for pair in pairs),
        no_bubble_error=_median(pairs, lambda pair: pair.expected.no_bubble_s) / measured - 1,
        no_communication_error=_median(pairs, lambda pair: without_communication(pair.predicted)) / measured - 1,
        formula_error=_median(pairs, lambda pair: pair.expected.formula_s) / measured - 1,
    )


def _median(pairs: Sequence[Pair], figure: Callable[[Pair], float]) -> float:
    return float(np.median([figure(pair) for pair in pairs]))


def _bubble(timeline: Timeline) -> float:
    steady = metrics(timeline).steady
    assert steady is not None, "every configuration has a steady state"
    return steady.bubble_fraction


@dataclass(frozen=True, slots=True)
class Summary:
    """Absolute values of one kind of error over all configurations."""

    median: float
    mean: float
    p95: float
    most: float

    @classmethod
    def of(cls, errors: Iterable[float]) -> Summary:
        """Summarize errors of any sign."""
        sizes = np.abs(list(errors))
        return cls(float(np.median(sizes)), float(sizes.mean()), float(np.percentile(sizes, 95)), float(sizes.max()))


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well one kind of interval holds."""

    inside: int
    total: int
    half_width: float
    """Median over the rounds: half the interval's length over its middle."""


def coverage(rows: Sequence[Row], interval: IntervalOf) -> Coverage | None:
    """Return how well a kind of interval holds over all rounds; None where it was not kept of all."""
    pairs = [pair for row in rows for pair in row.record.pairs]
    if not all(interval in pair.expected.intervals for pair in pairs):
        return None
    ends = [pair.expected.intervals[interval] for pair in pairs]
    widths = [(one.high - one.low) / (one.high + one.low) for one in ends]
    return Coverage(sum(pair.inside(interval) for pair in pairs), len(pairs), float(np.median(widths)))


@dataclass(frozen=True, slots=True)
class Ranking:
    """Whether predictions put configurations of one model in the right order."""

    tau: float
    """Kendall's tau over pairs that differ by more than the noise floor: (right - wrong) / all such pairs."""
    num_pairs: int
    regret: float
    """Largest over the models: how much slower the one predicted to be fastest is than the fastest, per mini-batch."""


def ranking(rows: Sequence[Row]) -> Ranking:
    """Compare configurations of the same model, which do the same work per mini-batch up to recomputation.

    A pair counts if its measurements differ by more than the larger of its noise floors.
    """
    right = wrong = 0
    for one, other in combinations(rows, 2):
        measured, predicted = other.measured_s / one.measured_s - 1, other.predicted_s / one.predicted_s - 1
        if not _same_work(one, other) or abs(measured) <= max(one.noise, other.noise):
            continue
        right, wrong = right + (measured * predicted > 0), wrong + (measured * predicted <= 0)
    models = {row.record.configuration.model for row in rows}
    return Ranking((right - wrong) / max(right + wrong, 1), right + wrong, max(_regret(rows, model) for model in models))


def _same_work(one: Row, other: Row) -> bool:
    first, second = one.record.configuration, other.record.configuration
    return first.model == second.model


def _regret(rows: Sequence[Row], model: str) -> float:
    own = [row for row in rows if row.record.configuration.model == model]
    chosen = min(own, key=lambda row: row.predicted_s)
    return chosen.measured_s / min(row.measured_s for row in own) - 1
