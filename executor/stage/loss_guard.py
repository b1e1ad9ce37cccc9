"""What becomes of a loss that is no finite number: said once, the end of the training, or nothing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
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


class LossGuard:
    """Looks at the losses of one training."""

    def __init__(self) -> None:
        self.on_nan = OnNan.WARN
        self.last_stage = 0
        """The one that computes losses."""
        self._told = False

    def look(self, mini_batch: int, place: int, *, loss: Tensor, part: MicroBatch) -> None:
        """Look at the loss of a micro-batch, on the device that has computed it; raise RunError if that is to end the training."""
        if self.on_nan is OnNan.RAISE and not math.isfinite(loss):
            raise RunError(
                f"{self._described(mini_batch, Seen(place, float(loss), part))}: training ended before it changed any weight; go "
                "on from a checkpoint with a lower rate, or clip gradients"
            )

    def tell(self, mini_batch: int, losses: Sequence[Seen]) -> None:
        """Warn of a mini-batch's losses, those that were computed in this process; in the caller's thread."""
        culprit = next((seen for seen in losses if not math.isfinite(seen.loss)), None)
        if culprit is None or self.on_nan is not OnNan.WARN or self._told:
            return
        self._told = True
        remedy = 'lower the rate, or clip gradients; a Trainer with on_nan="raise" ends there'
        warnings.warn(f"{self._described(mini_batch, culprit)}: {remedy}; it is said this once", SchedirWarning, stacklevel=1)

    def _described(self, mini_batch: int, seen: Seen) -> str:
        floating = [tensor for tensor in seen.part.inputs.tensors if tensor.is_floating_point()]
        given = "" if all(bool(tensor.isfinite().all()) for tensor in floating) else ", whose input is not finite either"
        return f"the loss of mini-batch {mini_batch} is {seen.loss} on stage {self.last_stage} (micro-batch {seen.place}{given})"
