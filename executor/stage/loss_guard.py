"""What becomes of a loss that is no finite number: said once, the end of the training, or nothing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from torch import Tensor

from executor.model.data import MicroBatch
from schedir.errors import ArgumentError, RunError, SchedirWarning


class OnNan(StrEnum):
    """What a training does about a loss that is not finite."""

    WARN = "warn"
    """It says so, the first time, and goes on."""
    RAISE = "raise"
    """It ends on the stage that has computed the loss, before that mini-batch updates any weight."""
    CONTINUE = "continue"
    """It goes on without a word."""

    @classmethod
    def of(cls, name: str) -> OnNan:
        """Return the member of a name; raise ArgumentError for any other."""
        if name not in tuple(cls):
            raise ArgumentError(f"on_nan {name!r} is unknown: use {' or '.join(cls)}")
        return cls(name)


class Seen(NamedTuple):
    """A loss that was computed in this process."""

    place: int
    """Of its micro-batch in its mini-batch."""
    loss: float
    part: MicroBatch


def _unknown(micro_batch: int) -> int | None:  # noqa: ARG001 - as a crew has it
    """Know of no stage."""
    return None


class LossGuard:
    """Looks at the losses of one training."""

    def __init__(self) -> None:
        self.on_nan = OnNan.WARN
        self.last_stage = 0
        """The one that computes losses."""
        self.first_not_finite: Callable[[int], int | None] = _unknown
        """Gives the first stage whose output for a micro-batch is not finite; asked while its stages still hold what they took."""
        self._culprits: dict[tuple[int, int], int | None] = {}
        """By (mini-batch, micro-batch in it) whose loss is not finite; written by the last stage's device, until one is told of."""
        self._told = False

    def look(self, mini_batch: int, place: int, *, loss: Tensor, part: MicroBatch, micro_batch: int) -> None:
        """Look at the loss of a micro-batch, on the device that has computed it; raise RunError if that is to end the training.

        `micro_batch` is what stages know it by. A GPU is not waited for where only a warning would come of it.
        """
        if self.on_nan is OnNan.CONTINUE or self._told or (self.on_nan is OnNan.WARN and loss.is_cuda) or math.isfinite(loss):
            return
        # asked now: behind this micro-batch's backwards the stages no longer have what they took
        self._culprits[mini_batch, place] = self.first_not_finite(micro_batch)
        if self.on_nan is OnNan.RAISE:
            raise RunError(
                f"{self._described(mini_batch, Seen(place, float(loss), part))}: training ended before it changed any weight; go "
                "on from a checkpoint with a lower rate, or clip gradients"
            )

    def tell(self, mini_batch: int, losses: Sequence[Seen]) -> None:
        """Warn of a mini-batch's losses, those that were computed in this process; in the caller's thread."""
        culprit = next((seen for seen in losses if not math.isfinite(seen.loss)), None)
        if culprit is None or self.on_nan is not OnNan.WARN or self._told:
            return
        # set before anything is said: under a filter that makes warnings errors it would else be said again
        self._told = True
        described = self._described(mini_batch, culprit)
        self._culprits.clear()
        remedy = 'lower the rate, or clip gradients; a Trainer with on_nan="raise" ends there'
        warnings.warn(f"{described}: {remedy}; it is said this once", SchedirWarning, stacklevel=1)

    def _described(self, mini_batch: int, seen: Seen) -> str:
        floating = [tensor for tensor in seen.part.inputs.tensors if tensor.is_floating_point()]
        given = "" if all(bool(tensor.isfinite().all()) for tensor in floating) else ", whose input is not finite either"
        first = self._culprits.get((mini_batch, seen.place))
        if not given and first is not None:
            given = f"; the output of stage {first} is the first that is not finite"
        return f"the loss of mini-batch {mini_batch} is {seen.loss} on stage {self.last_stage} (micro-batch {seen.place}{given})"
