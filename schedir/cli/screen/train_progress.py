"""How far a training is: a line now and then, losses and evaluations as they come."""

from __future__ import annotations

import math
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from schedir.cli.screen.progress import Steps
from schedir.cli.screen.screen import counted

if TYPE_CHECKING:
    from executor.recipe.training_outcome import Evaluation, TrainedMiniBatch

EVERY_S = 2.0
"""Seconds between two lines where nobody sees a bar, as long as training has not gone on for long."""
SHARE = 1 / 60
"""Of the time so far: then lines are that far apart, so that a log of hours can be read."""


class TrainProgress:
    """Shows mini-batches, numbered from 0; lines of the terminal's bar stay current, elsewhere one is printed every few seconds."""

    def __init__(self, steps: Steps, *, total: int | None) -> None:
        self._steps, self._total = steps, total
        self._last, self._samples = -math.inf, 0
        self._since = self._began = monotonic()

    def began(self, mini_batch: int, checkpoint: Path | None) -> None:  # noqa: ARG002 - the checkpoint's name has the number
        """Hear from where the training begins."""
        if checkpoint is not None:
            self._steps.say(f"going on from {checkpoint}")
        self._train()
        self._since = self._began = monotonic()

    def _train(self) -> None:
        """Say that training goes on, for where the next mini-batch takes long: the first one does."""
        self._steps.status("training")

    def trained(self, mini_batch: TrainedMiniBatch) -> None:
        """Hear of a mini-batch that is done."""
        self._samples += mini_batch.samples
        now, number = monotonic(), mini_batch.mini_batch
        self._steps.done(number + 1, self._total or number + 1, f"loss {mini_batch.loss:.4g}")
        if not self._steps.has_bar and now - self._last >= max(EVERY_S, SHARE * (now - self._began)):
            rate = self._samples / (now - self._since) if now > self._since else 0.0
            self._steps.say(f"mini-batch {number}: loss {mini_batch.loss:.4g}, {rate:.4g} samples/s")
            self._last, self._since, self._samples = now, now, 0

    def evaluating(self, mini_batch: int) -> None:
        """Hear that an evaluation begins."""
        self._steps.status(f"evaluating after {counted(mini_batch, 'mini-batch')}")

    def evaluated(self, evaluation: Evaluation) -> None:
        """Hear of an evaluation."""
        figures = ", ".join(f"{name} {value:.4g}" for name, value in evaluation.figures.items())
        # the same moment evaluated behind a drain gives other figures, and both are right
        apart = "" if evaluation.drained else " (stages some updates apart)"
        self._steps.say(f"after {counted(evaluation.mini_batch, 'mini-batch')}{apart}: validation {figures}")
        self._train()

    def saving(self, mini_batch: int) -> None:
        """Hear that a checkpoint is about to be written."""
        self._steps.status(f"writing the checkpoint after {counted(mini_batch, 'mini-batch')}")

    def saved(self, mini_batch: int, checkpoint: Path) -> None:  # noqa: ARG002 - the checkpoint is named by it
        """Hear of a checkpoint."""
        self._steps.say(f"wrote {checkpoint}")
        self._train()
