"""What a comparison of predicted and measured training is given, tells on its way, and finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from schedir.costs.table import TableCosts
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from schedir.timeline.compare import Comparison
from schedir.timeline.timeline import Timeline


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
class Progress:
    """How far the comparison is."""

    done: int
    """Steps done, of `total`."""
    total: int
    text: str
    """What is done now: `xpipe: train 12 mini-batches (round 2 of 4)`."""


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One prediction and its measurement."""

    predicted: Timeline
    measured: Timeline
    predicted_step_s: float
    """Seconds per mini-batch, of the steady state."""
    measured_step_s: float


@dataclass(frozen=True, slots=True, eq=False)
class TrainedSchedule:
    """What came out for one schedule."""

    graph: TaskGraph
    rounds: tuple[Round, ...]
    losses: tuple[float, ...]
    """Of all mini-batches, those of the warm-up first."""
    mini_batch_size: int
    costs: TableCosts
    """Of the last profile."""
    comparison: Comparison
    """The prediction of median step against all measured rounds."""

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.graph.program.name

    @property
    def predicted_step_s(self) -> float:
        """Seconds per mini-batch of the prediction of median step."""
        return self.comparison.predicted.step_s

    @property
    def measured_step_s(self) -> float:
        """Seconds per mini-batch, the median over rounds."""
        return float(np.median([one.measured_step_s for one in self.rounds]))

    @property
    def step_error_fraction(self) -> float:
        """predicted / measured - 1."""
        return self.comparison.step_error_fraction

    @property
    def noise_floor_fraction(self) -> float | None:
        """How far a round is from the median of the others; for a single round, its mini-batches likewise."""
        return self.comparison.noise_floor_fraction

    @property
    def samples_per_s(self) -> float:
        """Samples trained per second, measured."""
        return self.mini_batch_size / self.measured_step_s
