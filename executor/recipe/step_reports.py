"""From steps that were asked for to mini-batches that are told of, in order.

step ─▶ on its way ─▶ its loss is known ─▶ its update is known ─▶ told
                             └── a fault: told as it is ──────────▶
"""

from __future__ import annotations

from collections import deque

from executor.recipe.training_outcome import TrainedMiniBatch, TrainingOutcome, Watcher
from executor.trainer.step_result import Step
from executor.trainer.trainer import Trainer
from executor.trainer.updating.update_log import UpdateFacts
from executor.workers.choice import WorkersKind

EXCHANGE_EVERY = 16
"""Mini-batches between two moments at which processes put together what they know of updates: each knows its own stages'."""


class StepReports:
    """Of one training, into its outcome and to who watches it."""

    def __init__(self, trainer: Trainer, outcome: TrainingOutcome, watch: Watcher) -> None:
        """Begin before the first step, since from then on updates are taken down."""
        self._trainer, self._outcome, self._watch = trainer, outcome, watch
        self._on_way: deque[tuple[Step, int]] = deque()
        """With their samples."""
        self._settled: deque[tuple[Step, int]] = deque()
        """Their loss is known, but not what their update was made with."""
        self._updates: dict[int, UpdateFacts] = {}
        """By mini-batch that is not told yet."""
        trainer.log_updates()

    def add(self, step: Step, samples: int) -> None:
        """Take a step that was just asked for, and tell of those before it that nobody has to wait for."""
        self._on_way.append((step, samples))
        while len(self._on_way) > self._trainer.num_overlapping:
            self._settle()
            is_alone = self._trainer.workers != WorkersKind.DISTRIBUTED
            if is_alone or len(self._outcome.losses) % EXCHANGE_EVERY == 0:
                self._take_updates()
            self._tell()

    def add_drained(self) -> None:
        """Tell of all steps: their updates are made."""
        while self._on_way:
            self._settle()
        self._take_updates()
        self._tell()

    def tell_rest(self) -> None:
        """Tell of those whose loss is known, behind a fault."""
        while self._settled:
            self._tell_first()

    def _settle(self) -> None:
        step, samples = self._on_way.popleft()
        self._outcome.losses.append(step.loss)
        self._outcome.samples += samples
        self._settled.append((step, samples))

    def _take_updates(self) -> None:
        self._updates |= {facts.mini_batch: facts for facts in self._trainer.take_updates()}

    def _tell(self) -> None:
        while self._settled and self._settled[0][0].mini_batch in self._updates:
            self._tell_first()

    def _tell_first(self) -> None:
        step, samples = self._settled[0]
        facts = self._updates.pop(step.mini_batch, None)
        known = () if facts is None else (facts.learning_rate, facts.gradient_norm)
        self._watch.trained(TrainedMiniBatch(step.mini_batch, step.loss, samples, *known))
        # not before: if an interrupt comes between the two, who hears of one twice can tell, who never does cannot
        self._settled.popleft()
