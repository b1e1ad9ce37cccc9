"""The baseline of a comparison with training: the model in one piece, in one thread, on the same mini-batches.

It takes its turn in every round, behind the schedules, so that a slow minute of the machine meets it as it meets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from schedir.workflows.comparing.training_results import Spread

if TYPE_CHECKING:
    from executor.profiling.plain import PlainTraining

NAME = "plain torch"
"""What tables call it."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainResult:
    """What the plain loop took, and what its losses were."""

    steps_s: tuple[float, ...]
    """Seconds per mini-batch of every measured round."""
    losses: tuple[float, ...]
    """Of all mini-batches, those of the warm-up first."""
    mini_batch_size: int

    @property
    def step_s(self) -> float:
        """Seconds per mini-batch: the median of the rounds, as it is for a schedule."""
        return self.steps.median

    @property
    def steps(self) -> Spread:
        """Seconds per mini-batch over all rounds."""
        return Spread.of(self.steps_s)

    @property
    def samples_per_s(self) -> float:
        """Samples trained per second."""
        return self.mini_batch_size / self.step_s


class PlainTorch:
    """A plain training that takes its turn in every round of `compare_training`."""

    def __init__(self, training: PlainTraining, data: Iterator[Any], size_of: Callable[[Any], int], *, mini_batches: int) -> None:
        """Take the training, its endless data, what tells a mini-batch's samples, and how many one round has (at least 2)."""
        self._training, self._data, self._size_of = training, data, size_of
        self.num_mini_batches = mini_batches
        self._steps: list[float] = []
        self._losses: list[float] = []
        self._size = 0

    def train(self, number: int) -> None:
        """Train one round; number 0 warms up."""
        group = list(islice(self._data, self.num_mini_batches))  # drawn before the clock runs
        self._size = self._size_of(group[0][0])
        losses, ends = self._training.train(group)
        self._losses += losses
        if number:
            # as the steady state of a schedule with a flush: from the end of the first mini-batch to that of the last
            self._steps.append((ends[-1] - ends[0]) / (len(ends) - 1))

    def result(self) -> PlainResult:
        """Return all that was found."""
        return PlainResult(tuple(self._steps), tuple(self._losses), self._size)
