"""Which checkpoint was the best when it was evaluated: it stays beside the last ones.

What is known of every checkpoint is kept, not of the best alone: where somebody removes that one by hand, the best of the others
takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.checkpoint.folder import folder_name


@dataclass(frozen=True, slots=True)
class SavedLosses:
    """The validation losses of the checkpoints of one folder."""

    folder: Path
    _losses: dict[int, float] = field(default_factory=dict)
    """By how many mini-batches the checkpoint stands after, in the order in which they were evaluated."""

    def take(self, mini_batch: int, loss: float) -> None:
        """Hear of an evaluation of what was saved just before; one that is no finite number makes no checkpoint the best."""
        self._losses.pop(mini_batch, None)  # of an earlier evaluation: on another machine it may have been another one
        if math.isfinite(loss):
            self._losses[mini_batch] = loss

    def best(self) -> int | None:
        """Return after how many mini-batches the best checkpoint stands, of equal ones the first; None if none is there."""
        there = self._there()
        return min(there, key=there.__getitem__, default=None)

    def plain(self) -> dict[str, Any]:
        """Return plain values, for a checkpoint: the evaluations of before are not with who goes on from it."""
        return {"validation_losses": [[mini_batch, loss] for mini_batch, loss in self._there().items()]}

    def learn(self, data: Mapping[str, Any]) -> None:
        """Take in what a checkpoint has from `plain`, if anything; raise TypeError or ValueError where it is none of that."""
        # checkpoints from before this was kept have the best alone, or nothing
        only = data.get("best")
        pairs = data.get("validation_losses", () if only is None else (only,))
        self._losses.update((int(mini_batch), float(loss)) for mini_batch, loss in pairs)

    def _there(self) -> dict[int, float]:
        """Return those whose checkpoints are on the disk: who looks after a folder by hand removes which he likes."""
        return {number: loss for number, loss in self._losses.items() if (self.folder / folder_name(number)).is_dir()}
