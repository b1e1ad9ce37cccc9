"""Which checkpoint was the best when it was evaluated: it stays beside the last ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class BestSaved:
    """The least validation loss of all moments at which there was a checkpoint."""

    loss: float = math.inf
    mini_batch: int | None = None
    """How many mini-batches the checkpoint stands behind; None while there is none."""

    def take(self, mini_batch: int, loss: float) -> None:
        """Hear of an evaluation of what was saved just before; of equal ones the first counts, and one that is NaN never does."""
        if loss < self.loss:
            self.loss, self.mini_batch = loss, mini_batch

    @property
    def staying(self) -> Collection[int]:
        """Numbers of the checkpoints that stay."""
        return () if self.mini_batch is None else (self.mini_batch,)

    def plain(self) -> list[float | int] | None:
        """Return plain values, for a checkpoint: the evaluations of before are not with who goes on from it."""
        return None if self.mini_batch is None else [self.mini_batch, self.loss]

    @classmethod
    def of(cls, plain: Sequence[float] | None) -> BestSaved:
        """Return what `plain` was made of; None: nothing is known, as in checkpoints from before this was kept."""
        return cls() if plain is None else cls(float(plain[1]), int(plain[0]))
