"""What the updates of a training were made with: their learning rate, and the norm of their gradients.

    device's thread    note: squares of a stage's gradients, its rate            open, by (mini-batch, stage)
    caller's thread    finish: every update of a mini-batch is made here    ──▶  parts ── of all processes ──▶ facts

Nothing waits for a number while the devices work: sums of squares stay tensors, on a GPU too, until their mini-batch is finished.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from executor.stage.gradients import Sums
from executor.trainer.updating.clipping import sum_of_squares


@dataclass(frozen=True, slots=True)
class UpdateFacts:
    """How the weights were updated by one mini-batch, on all stages."""

    mini_batch: int
    learning_rate: float | None
    """That of the first group of the first stage that has an optimizer; None if no stage has one."""
    gradient_norm: float
    """Euclidean, over all stages, before clipping and without the loss scale; not finite where a gradient was not. Under 1F1B-RR an
    update of several mini-batches counts for each of them."""


@dataclass(frozen=True, slots=True)
class UpdatePart:
    """What one process knows of them."""

    mini_batch: int
    squares: tuple[tuple[int, float], ...]
    """(stage, sum of squares) of its stages. By stage, since replicas in other processes have the same gradients once more."""
    rate: tuple[int, float] | None
    """(first of its stages that has an optimizer, rate), None if none has."""


class UpdateLog:
    """Of one training, from the step on with which it begins."""

    def __init__(self, round_sizes: Sequence[int], *, num_processes: int) -> None:
        """Take how many mini-batches an update is of, by stage."""
        self._round_sizes, self._num_processes = round_sizes, num_processes
        self._open: dict[tuple[int, int], tuple[Tensor | None, float | None]] = {}
        self._own: list[UpdatePart] = []
        """Finished here, and not taken yet."""
        self._parts: dict[int, list[UpdatePart]] = {}
        """By mini-batch: what has come of the processes so far."""

    def note(self, stage: int, first: int, *, gradients: Sums, rate: float | None) -> None:
        """Take an update down, in its device's thread; `first` is the first mini-batch that it is of.

        Replicas of a stage note the same, since they have exchanged their gradients.
        """
        squares = sum_of_squares(gradients)
        for mini_batch in range(first, first + self._round_sizes[stage]):
            # one assignment: threads of several devices write at the same time
            self._open[mini_batch, stage] = squares, rate

    def finish(self, mini_batches: Iterable[int]) -> None:
        """Hear that every update of these mini-batches is made, as far as this process makes them."""
        stages = range(len(self._round_sizes))
        for mini_batch in mini_batches:
            noted = [(stage, *self._open.pop((mini_batch, stage))) for stage in stages if (mini_batch, stage) in self._open]
            # the first number that a GPU is asked for; it has done all that it is made of
            squares = tuple((stage, float(each)) for stage, each, _ in noted if each is not None)
            rates = [(stage, rate) for stage, _, rate in noted if rate is not None]
            self._own.append(UpdatePart(mini_batch, squares, min(rates, default=None)))

    def forget(self) -> None:
        """Forget what is open: the pipeline is empty, and the last round may have had fewer mini-batches than it might."""
        self._open.clear()

    def take_own(self) -> list[UpdatePart]:
        """Return what this process knows since it was last asked."""
        own, self._own = self._own, []
        return own

    def merged(self, parts: Iterable[Iterable[UpdatePart]]) -> list[UpdateFacts]:
        """Take what all processes know; return the mini-batches of which now everything is known, in their order."""
        for part in (part for own in parts for part in own):
            self._parts.setdefault(part.mini_batch, []).append(part)
        whole = sorted(number for number, known in self._parts.items() if len(known) == self._num_processes)
        return [_facts(self._parts.pop(number)) for number in whole]


def _facts(parts: Sequence[UpdatePart]) -> UpdateFacts:
    rate = min((part.rate for part in parts if part.rate is not None), default=None)
    squares = dict(pair for part in parts for pair in part.squares)
    # in the order of the stages, so that threads and processes find the same to the last bit
    total = sum(squares[stage] for stage in sorted(squares))
    return UpdateFacts(parts[0].mini_batch, None if rate is None else rate[1], math.sqrt(total))
