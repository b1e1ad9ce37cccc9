"""What a comparison of predicted and measured training is given, tells on its way, and finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from schedir.costs.table.table import TableCosts
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from schedir.timeline.comparison.compare import Comparison
from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.metrics.shown import shown_bubble
from schedir.timeline.percent import signed
from schedir.timeline.timeline import Timeline
from schedir.workflows.comparing.predicting import Prediction

BUSY = 0.25
"""From this share of preempted samples on a machine is called busy."""

LEAST_ROUNDS = 3
"""Fewer rounds allow no conclusion: their median is not apart from their ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetting:
    """What all schedules have in common. Raises ArgumentError for values that break a rule."""

    recompute: str = "never"
    """As `compile_program` takes it."""
    rounds: int = 7
    """Measured runs of every schedule, after one that warms up."""
    time_limit_s: float | None = None
    """No round begins that would end later than this, except the first measured one; None: no limit."""
    repeats: int = 5
    """Mini-batches that a round's profile measures."""
    draws: int = 51
    """Draws of all durations that a prediction is the median of."""
    workers: str = "threads"
    """What trains: threads, one per device, or the GPUs of this machine (cuda, cuda-partitions)."""
    seed: int = 0
    """Of the data and the draws."""
    timeout: float = 600.0
    """Seconds that a device is waited for at most, while profiling and while training."""

    def __post_init__(self) -> None:
        for name in ("rounds", "repeats", "draws"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ArgumentError(f"{name} {value!r} must be an integer of at least 1")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ArgumentError(f"time_limit_s {self.time_limit_s!r} must be a number of seconds above 0, or None")


@dataclass(frozen=True, slots=True)
class ComparisonProgress:
    """How far the comparison is."""

    done: int
    """Steps done, of `total`."""
    total: int
    text: str
    """What is done now: `xpipe: train 12 mini-batches (round 2 of 4)`."""
    note: str = ""
    """What is to be known before it: a line, or nothing."""


Report = Callable[[ComparisonProgress], None]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One profile, the prediction from it, and the measurement of what was predicted."""

    number: int
    """Counted from 1; the warm-up is none."""
    costs: TableCosts
    predicted: Prediction
    measured: Timeline
    measured_step_s: float
    """Seconds per mini-batch, of the steady state."""

    @property
    def predicted_step_s(self) -> float:
        """Seconds per mini-batch, of the steady state."""
        return self.predicted.step_s

    @property
    def figures(self) -> Metrics:
        """Of the measurement."""
        return metrics(self.measured)

    @property
    def inside(self) -> bool:
        """Whether the measured step lies in the interval that was predicted for it."""
        return self.predicted.step_interval.holds(self.measured_step_s)

    @property
    def step_error_fraction(self) -> float:
        """predicted / measured - 1."""
        return self.predicted_step_s / self.measured_step_s - 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over all rounds."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Take the figure of every round; there is at least one."""
        least, median, most = np.percentile(list(values), (0, 50, 100)).tolist()
        return cls(least, median, most)


@dataclass(frozen=True, slots=True, eq=False)
class TrainedSchedule:
    """What came out for one schedule; figures are medians over the rounds, but for costs and comparison, which are one round's."""

    graph: TaskGraph
    rounds: tuple[Round, ...]
    judged: Round
    """The round whose error is nearest the median: the one that is drawn and compared task by task."""
    losses: tuple[float, ...]
    """Of all mini-batches, those of the warm-up first."""
    mini_batch_size: int
    comparison: Comparison
    """The judged round's prediction against its measurement."""

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.graph.program.name

    @property
    def costs(self) -> TableCosts:
        """What the judged round's profile measured."""
        return self.judged.costs

    @property
    def predicted_step_s(self) -> float:
        """Seconds per mini-batch: the median of the rounds."""
        return self.predicted_steps.median

    @property
    def measured_step_s(self) -> float:
        """Seconds per mini-batch: the median of the rounds."""
        return self.measured_steps.median

    @property
    def step_error_fraction(self) -> float:
        """The median of the rounds' own predicted / measured - 1; the two median steps may belong to different rounds."""
        return self.step_errors.median

    @property
    def noise_floor_fraction(self) -> float | None:
        """How far a round is from the median of the others; for a single round, its mini-batches likewise."""
        return self.comparison.noise_floor_fraction

    @property
    def samples_per_s(self) -> float:
        """Samples trained per second, measured."""
        return self.mini_batch_size / self.measured_step_s

    @property
    def bubbles(self) -> tuple[float, float]:
        """Idle share of the steady state (else of the run), predicted and measured: medians of the rounds."""
        predicted = Spread.of(one.predicted.bubble_fraction for one in self.rounds)
        return predicted.median, Spread.of(shown_bubble(one.figures) for one in self.rounds).median

    @property
    def recompute_share(self) -> float:
        """Share of the busy time, measured: the median of the rounds."""
        return Spread.of(one.figures.recompute_share for one in self.rounds).median

    @property
    def steps_inside(self) -> int:
        """Rounds whose measured step lies in the interval that was predicted for it."""
        return sum(one.inside for one in self.rounds)

    @property
    def predicted_steps(self) -> Spread:
        """Seconds per mini-batch over all rounds."""
        return Spread.of(one.predicted_step_s for one in self.rounds)

    @property
    def measured_steps(self) -> Spread:
        """Seconds per mini-batch over all rounds."""
        return Spread.of(one.measured_step_s for one in self.rounds)

    @property
    def step_errors(self) -> Spread:
        """predicted / measured - 1, every round's own."""
        return Spread.of(one.step_error_fraction for one in self.rounds)


def judged_round(rounds: Sequence[Round]) -> Round:
    """Return the round whose error is nearest the median; of two as near the one that is further off, so that none flatters."""
    median = Spread.of(one.step_error_fraction for one in rounds).median
    # rounded: of an even number of rounds the middle two are as near, but for the last bit
    return min(rounds, key=lambda one: (round(abs(one.step_error_fraction - median), 12), -abs(one.step_error_fraction)))


def round_words(judged: Round, rounds: Sequence[Round]) -> str:
    """Say which round is drawn, and what its error is one of: `round 4 of 5, nearest the median error +16.6 % (-45.5 to …)`."""
    if len(rounds) == 1:
        return "the only round"
    errors = Spread.of(one.step_error_fraction for one in rounds)
    ends = f"{signed(errors.least)} to {signed(errors.most)}"
    return f"round {judged.number} of {len(rounds)}, nearest the median error {signed(errors.median)} ({ends})"


def caution(schedules: Sequence[Sequence[Round]]) -> str:
    """Return why little can be concluded from these rounds: too few, a busy machine; empty where nothing hinders it.

    The machine was busy if the system took the core away in too many of the tasks of any schedule's median profile.
    """
    taken = [Spread.of(one.costs.source.get("preempted_fraction", 0.0) for one in rounds).median for rounds in schedules]
    busy, count = "machine busy" if max(taken) > BUSY else "", len(schedules[0])
    if count >= LEAST_ROUNDS:
        return busy
    few = f"no conclusion: {count} round{'s' if count > 1 else ''}"
    return f"{few}, {busy}" if busy else few
