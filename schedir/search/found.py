"""What a search may use, how far it is, and what it found."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum

from schedir.errors import ArgumentError
from schedir.ir.program import Program
from schedir.ir.repetition import repeat_program
from schedir.ir.shape import is_count
from schedir.search.judge import Judged
from schedir.search.problem.problem import StagePlacement

AS_GOOD = 1 + 1e-9
"""A value within this factor of the bound is optimal."""

SECONDS = 10.0
"""Time of a search that is given neither time nor iterations."""


class Stop(StrEnum):
    """Why a search ended."""

    TIME = "time"
    ITERATIONS = "iterations"
    OPTIMAL = "optimal"
    NO_START = "no-start"
    """Nothing else fits that local search could go on from."""
    INTERRUPTED = "interrupted"


class BoundBy(StrEnum):
    """Where a bound comes from."""

    WORK = "work"
    """A device's work with what must come before and behind it, under the limits: see `schedir.search.proofs.bound`."""
    CP_SAT = "cp-sat"
    """Proved by the solver."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is."""

    doing: str
    """What goes on, in two words."""
    steps: int
    """Orders that local search has tried."""
    value: float
    """The best so far, in seconds."""
    bound: float
    """In seconds."""


@dataclass(frozen=True, slots=True)
class SolverLimits:
    """What the solver may use."""

    seconds: float
    workers: int


@dataclass(slots=True)
class Budget:
    """What a search may use. Raises ArgumentError for a time or number that is none."""

    seconds: float | None
    iterations: int | None
    steps: int = 0
    """Iterations that are used up."""
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise ArgumentError(f"time_budget {self.seconds} must be a finite number of seconds above 0")
        if self.iterations is not None and not is_count(self.iterations):
            raise ArgumentError(f"iterations {self.iterations!r} must be an integer of at least 1")
        if self.seconds is None and self.iterations is None:
            self.seconds = SECONDS

    def seconds_left(self, share: float = 1.0) -> float:
        """Return what is left of a share of the time."""
        return float("inf") if self.seconds is None else share * self.seconds - (time.monotonic() - self.began)


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a search found."""

    best: Judged
    """The registered schedule where nothing is shorter than it."""
    placement: StagePlacement
    """Where the best order's stages stand."""
    bound: float
    """No order of the kinds and placements that were searched is below, in seconds."""
    bound_by: BoundBy
    registered: Judged | None
    """The best registered schedule that fits; None: none of them does, or there is none."""
    has_registered: bool
    """A registered schedule, whether it fits or not, has the shape, the placement and the kinds that were searched."""
    steps: int
    """Orders that local search tried."""
    stopped: Stop
    notes: tuple[str, ...] = ()
    """What a reader of the bound should know."""
    two_ways: tuple[str, ...] = ()
    """What schedules of two directions take, which do not compete."""

    def program(self, num_mini_batches: int = 1) -> Program:
        """Return the best program, its order repeated for so many mini-batches."""
        return repeat_program(self.best.program, num_mini_batches)

    @property
    def gap(self) -> float:
        """How far the best order may be from the best there is: value / bound - 1, at least 0."""
        return max(0.0, self.best.value / self.bound - 1) if self.bound > 0 else 0.0

    @property
    def optimal(self) -> bool:
        """Whether no order of the kinds and placements that were searched is better."""
        return self.best.value <= self.bound * AS_GOOD
