"""Train a recipe from its data to its last checkpoint: what `schedir train` does, apart from reading and printing.

    evaluate ── epoch: step step … save … step ── evaluate ── epoch … ── drain, save, evaluate

A training that goes on from a checkpoint takes the data up where it stood, so together both are the training that never stopped.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

from executor.checkpoint.checkpoint import Checkpoint
from executor.global_random import same_random
from executor.model.data import samples
from executor.recipe.epochs import given_by, noted
from executor.recipe.recipe import Recipe
from executor.recipe.saved_losses import SavedLosses
from executor.recipe.step_reports import StepReports
from executor.recipe.training_data import TrainingData, no_place
from executor.recipe.training_outcome import Evaluation, TrainingOutcome, Watcher
from executor.recipe.training_plan import TrainingPlan, make_trainer
from executor.trainer.trainer import Trainer
from schedir.errors import ArgumentError
from schedir.timeline.timeline import Timeline


def train_recipe(recipe: Recipe, plan: TrainingPlan, *, folder: Path, resume: Path | None, watch: Watcher) -> TrainingOutcome:
    """Train, with checkpoints in `folder`, from the checkpoint at `resume` on if one is given.

    However it ends, `watch` has heard of all mini-batches whose loss is known, then the error goes on.
    """
    if plan.evaluate_every is not None and recipe.validation is None:
        raise ArgumentError(
            f"evaluate_every {plan.evaluate_every}: {recipe.name} has no validation: give the recipe one, or leave it out"
        )
    with make_trainer(recipe, plan) as trainer:
        return _Loop(recipe, plan, trainer, folder=folder, watch=watch).run(resume)


class _Loop:
    """One training."""

    def __init__(self, recipe: Recipe, plan: TrainingPlan, trainer: Trainer, *, folder: Path, watch: Watcher) -> None:
        self._recipe, self._plan, self._trainer, self._folder, self._watch = recipe, plan, trainer, folder, watch
        self._data = TrainingData(recipe, plan, trainer)
        self._outcome = TrainingOutcome(program=trainer.program, workers=str(trainer.workers))
        self._reports = StepReports(trainer, self._outcome, watch)
        self._saved_at: int | None = None
        """After how many mini-batches the newest checkpoint stands, written or gone on from."""
        self._drained_at = 0
        """After how many mini-batches all stages had had the same updates for the last time."""
        self._saved_losses = SavedLosses(folder)
        self._apart = False
        """They had not, when the last figures were taken."""

    def run(self, resume: Path | None) -> TrainingOutcome:
        """Train to the end."""
        outcome = self._outcome
        if resume is None:
            self._trainer.begin_anew()  # another process may have found a checkpoint
        else:
            self._go_on_from(self._trainer.load(resume))
        self._watch.began(outcome.first_mini_batch, outcome.checkpoint)
        try:
            self._train()
        except BaseException:
            self._reports.tell_rest()
            raise
        return outcome

    def _train(self) -> None:
        outcome = self._outcome
        self._evaluate()
        epoch = self._data.epoch
        for inputs, targets in self._data:
            if self._plan.evaluate_every is None and epoch not in {None, self._data.epoch}:
                self._evaluate()
            epoch = self._data.epoch
            self._step(inputs, targets)
        self._drain()
        outcome.left_out, outcome.loss_scale = self._data.left_out, self._trainer.loss_scale
        outcome.skipped = self._trainer.skipped_updates
        if outcome.losses:
            self._save()
            self._evaluate()

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        """Take everything up where it stood."""
        self._outcome.first_mini_batch, self._outcome.checkpoint = checkpoint.mini_batch, checkpoint.path
        self._saved_at = self._drained_at = checkpoint.mini_batch
        self._data.go_on_from(checkpoint)
        # the others beside a checkpoint of another folder are none of this one's
        if self._is_saved_here(checkpoint.mini_batch):
            try:
                self._saved_losses.learn(checkpoint.data)
            except (TypeError, ValueError) as error:
                raise no_place(checkpoint, error) from error

    def _step(self, inputs: Any, targets: Any) -> None:
        began = perf_counter()
        # reports too: without a flush it is they that wait for a mini-batch
        self._reports.add(self._trainer.step(inputs, targets), samples(inputs))
        self._outcome.seconds += perf_counter() - began
        if self._is_turn(self._plan.checkpoint_every):
            self._drain()
            self._save()
        # behind the drain, if there is one: then all stages have had the same updates
        # after the last one it comes anyway, when all have
        if self._is_turn(self._plan.evaluate_every) and self._trainer.mini_batch != self._plan.num_mini_batches:
            self._evaluate()

    def _is_turn(self, every: int | None) -> bool:
        return every is not None and self._trainer.mini_batch % every == 0

    def _drain(self) -> None:
        began = perf_counter()
        self._trainer.drain()
        self._reports.add_drained()
        self._outcome.seconds += perf_counter() - began
        if self._drained_at != self._trainer.mini_batch:
            self._measure()
        self._drained_at = self._trainer.mini_batch

    def _measure(self) -> None:
        """Keep what was measured since the last drain, unless that before says more: of larger mini-batches, or of more."""
        timeline, kept = self._trainer.timeline, self._outcome.timeline
        # the last drain may come behind a single mini-batch, or behind the small rest of an epoch
        if kept is None or _num_measured(timeline) >= _num_measured(kept):
            self._outcome.timeline = timeline

    def _save(self) -> None:
        """Write a checkpoint of the empty pipeline, unless there is one of this very moment."""
        outcome = self._outcome
        if self._saved_at == self._trainer.mini_batch:
            return
        self._watch.saving(self._trainer.mini_batch)
        best = self._saved_losses.best()
        outcome.checkpoint = self._trainer.save(
            self._folder,
            data=self._data.plain() | self._saved_losses.plain(),
            plan=self._plan.plan,
            keep_last=self._plan.keep_last,
            staying=() if best is None else (best,),
        )
        self._saved_at = self._trainer.mini_batch
        self._watch.saved(self._saved_at, outcome.checkpoint)

    def _is_saved_here(self, mini_batch: int) -> bool:
        """Tell whether the newest checkpoint stands here, in this training's folder: it may go on from one of another."""
        checkpoint = self._outcome.checkpoint
        return self._saved_at == mini_batch and checkpoint is not None and checkpoint.parent.resolve() == self._folder.resolve()

    def _evaluate(self) -> None:
        """Evaluate, unless that was done at this moment; of the moments before and behind a drain the later one counts."""
        evaluations, number = self._outcome.evaluations, self._trainer.mini_batch
        is_known = bool(evaluations) and evaluations[-1].mini_batch == number
        if self._recipe.validation is None or (is_known and not self._apart):
            return
        self._watch.evaluating(number)
        # without a flush stages are some updates apart between two drains
        self._apart = not self._trainer.synchronous and self._drained_at != number
        # made inside too: training goes on with the numbers it had, whatever the data draw or seed when they are made
        with same_random():
            figures = self._trainer.evaluate(
                noted(given_by(self._recipe.validation, self._trainer.seed, "validation"), "validation")
            )
        evaluations[len(evaluations) - is_known :] = [Evaluation(number, figures, drained=not self._apart)]
        if self._is_saved_here(number):
            self._saved_losses.take(number, figures["loss"])
        self._watch.evaluated(evaluations[-1])


def _num_measured(timeline: Timeline) -> tuple[int, int]:
    """Return of how many samples the largest mini-batches are that were measured, and how many are as large."""
    meta = timeline.meta
    return meta["mini_batch_size"], meta["measured_mini_batches"] - meta["smaller_mini_batches"]
