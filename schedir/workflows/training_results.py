"""What a comparison of predicted and measured training is given, tells on its way, and finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from schedir.costs.table.table import TableCosts
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from schedir.timeline.comparison.compare import Comparison
from schedir.timeline.timeline import Timeline
from schedir.workflows.predicting import Prediction

BUSY = 0.25
"""From this share of preempted samples on a machine is called busy."""


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
    """What came out for one schedule; every figure belongs to the judged round, but for the noise floor and what is a `Spread`."""

    graph: TaskGraph
    rounds: tuple[Round, ...]
    judged: Round
    """The round whose measured step is the lower median."""
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
        """Seconds per mini-batch."""
        return self.judged.predicted_step_s

    @property
    def measured_step_s(self) -> float:
        """Seconds per mini-batch."""
        return self.judged.measured_step_s

    @property
    def step_error_fraction(self) -> float:
        """predicted / measured - 1."""
        return self.judged.step_error_fraction

    @property
    def noise_floor_fraction(self) -> float | None:
        """How far a round is from the median of the others; for a single round, its mini-batches likewise."""
        return self.comparison.noise_floor_fraction

    @property
    def samples_per_s(self) -> float:
        """Samples trained per second, measured."""
        return self.mini_batch_size / self.measured_step_s

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
    """Return the round whose measured step is the lower median: what was predicted for it is held against just that run."""
    return sorted(rounds, key=lambda one: one.measured_step_s)[(len(rounds) - 1) // 2]
