"""Train a recipe from its data to its last checkpoint: what `schedir train` does, apart from reading and printing.

    evaluate ── epoch: step step … save … step ── evaluate ── epoch … ── drain, save, evaluate

A training that goes on from a checkpoint takes the data up where it stood, so together both are the training that never stopped.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from executor.checkpoint.checkpoint import Checkpoint
from executor.global_random import same_random
from executor.model.data import samples
from executor.recipe.best_saved import BestSaved
from executor.recipe.epochs import EpochPlace, Epochs, given_by, noted
from executor.recipe.recipe import Recipe
from executor.recipe.step_reports import StepReports
from executor.recipe.training_outcome import Evaluation, TrainingOutcome, Watcher
from executor.recipe.training_plan import TrainingPlan, make_trainer
from executor.trainer.trainer import Trainer
from executor.workers.environment import process_number
from schedir.errors import ArgumentError, FormatError, SchedirWarning
from schedir.ir.expect import kind_of
from schedir.timeline.timeline import Timeline

_END: Any = object()
"""What follows the last mini-batch: None may be one of the user's, by mistake."""
_MOST_LEFT_OUT = 1000
"""So many mini-batches one after the other that are too small are a mistake, not what is left at an epoch's end."""


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
        self._size = plan.mini_batch_size
        self._epochs = self._make_epochs()
        self._outcome = TrainingOutcome()
        self._reports = StepReports(trainer, self._outcome, watch)
        self._saved_at: int | None = None
        """Behind how many mini-batches the newest checkpoint stands, written or gone on from."""
        self._drained_at = 0
        """Behind how many mini-batches all stages had had the same updates for the last time."""
        self._best = BestSaved()
        self._apart = False
        """They had not, when the last figures were taken."""

    def _make_epochs(self) -> Epochs:
        recipe, plan = self._recipe, self._plan
        size = recipe.epoch_size if plan.epoch_size is None else plan.epoch_size
        bounded = plan.num_epochs is None or plan.num_mini_batches is not None or size is not None
        return Epochs(
            recipe.data if bounded else partial(_data_that_may_not_end, recipe),
            seed=self._trainer.seed,
            num_epochs=plan.num_epochs,
            epoch_size=size,
            mini_batch_size=self._size,
        )

    def run(self, resume: Path | None) -> TrainingOutcome:
        """Train to the end."""
        outcome = self._outcome
        if resume is not None:
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
        epoch = None if self._epochs.place is None else self._epochs.place.epoch
        for inputs, targets in self._wanted():
            assert self._epochs.place is not None
            if self._plan.evaluate_every is None and epoch not in {None, self._epochs.place.epoch}:
                self._evaluate()
            epoch = self._epochs.place.epoch
            self._step(inputs, targets)
        if not self._reports.any_step and not outcome.first_mini_batch:
            raise ArgumentError(self._nothing())
        self._drain()
        outcome.skipped, outcome.loss_scale = self._trainer.skipped_updates, self._trainer.loss_scale
        if outcome.losses:
            self._save()
            self._evaluate()

    def _go_on_from(self, checkpoint: Checkpoint) -> None:
        """Take the data up where they stood, with that training's seed and size of mini-batches."""
        self._outcome.first_mini_batch, self._outcome.checkpoint = checkpoint.mini_batch, checkpoint.path
        self._saved_at = checkpoint.mini_batch
        self._drained_at = checkpoint.mini_batch
        if "place" not in checkpoint.data:
            raise ArgumentError(
                f"{checkpoint.path} does not say where in the data it stands: resume one that `schedir train` wrote"
            )
        size, place, best = self._place_of(checkpoint)
        if self._is_saved_here(checkpoint.mini_batch):
            self._best = best
        if self._size not in {None, size}:
            raise ArgumentError(
                f"mini_batch_size {self._size}: {checkpoint.path} has {size or 'that of the data'}, which its place in the data "
                "counts: leave it out"
            )
        self._size = size
        self._epochs = self._make_epochs()
        if place is not None:
            self._epochs.go_on_from(place)

    @staticmethod
    def _place_of(checkpoint: Checkpoint) -> tuple[int | None, EpochPlace | None, BestSaved]:
        """Return the size of that training's mini-batches, where in the data it stood, and which checkpoint was its best."""
        data: Mapping[str, Any] = checkpoint.data
        try:
            place = None if data["place"] is None else EpochPlace.of(data["place"])
            return data["mini_batch_size"], place, BestSaved.of(data.get("best"))
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise FormatError(
                f"{checkpoint.path}: its place in the data is none ({type(error).__name__}: {error}): take another checkpoint"
            ) from error

    def _wanted(self) -> Iterator[tuple[Any, Any]]:
        """Yield mini-batches until there have been enough; those that are too small for their micro-batches are left out."""
        limit, stream = self._plan.num_mini_batches, iter(self._epochs)
        left_out_in_a_row, first_epoch = 0, 0  # too small, one after the other, and the epoch of the first of them
        # the limit is looked at before the data are asked for one more: they may be slow, or draw random numbers
        while limit is None or self._trainer.mini_batch < limit:
            mini_batch = next(stream, _END)
            if mini_batch is _END:
                return
            place = self._epochs.place
            assert place is not None
            if not self._is_too_small(mini_batch):
                left_out_in_a_row = 0
                yield mini_batch
                continue
            self._outcome.left_out += 1
            first_epoch = first_epoch if left_out_in_a_row else place.epoch
            left_out_in_a_row += 1
            # a whole epoch has given nothing, or data that may be endless seem never to
            if place.epoch > first_epoch + 1 or left_out_in_a_row >= _MOST_LEFT_OUT:
                raise ArgumentError(self._nothing(left_out_in_a_row))

    def _is_too_small(self, mini_batch: Any) -> bool:
        if not isinstance(mini_batch, tuple | list) or len(mini_batch) != 2:
            raise ArgumentError(f"a mini-batch is {kind_of(mini_batch)}, not a pair: give (input, target)")
        return _num_samples(mini_batch) < self._trainer.program.num_micro_batches

    def _nothing(self, left_out_in_a_row: int = 0) -> str:
        if self._outcome.left_out:
            some = self._reports.any_step
            which = f"{left_out_in_a_row} mini-batches one after the other have" if some else "every mini-batch has"
            return (
                f"{which} fewer samples than the {self._trainer.program.num_micro_batches} micro-batches: make them "
                "larger, or use fewer micro-batches"
            )
        return "there are no mini-batches: let data give at least one (input, target)"

    def _step(self, inputs: Any, targets: Any) -> None:
        began = perf_counter()
        samples = _num_samples((inputs, targets))
        self._reports.add(self._trainer.step(inputs, targets), samples)
        self._outcome.seconds += perf_counter() - began
        if self._is_turn(self._plan.checkpoint_every):
            self._drain()
            self._save()
        # behind the drain, if there is one: then all stages have had the same updates
        # behind the last one it comes anyway, when all have
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
        place = None if self._epochs.place is None else self._epochs.place.plain()
        data = {"place": place, "mini_batch_size": self._size, "best": self._best.plain()}
        outcome.checkpoint = self._trainer.save(
            self._folder, data=data, plan=self._plan.plan, keep_last=self._plan.keep_last, staying=self._best.staying
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
            self._best.take(number, figures["loss"])
        self._watch.evaluated(evaluations[-1])


def _data_that_may_not_end(recipe: Recipe, seed: int) -> Iterable[Any]:
    """Return a recipe's data, with a word about data that may be endless where nothing else ends an epoch."""
    data = given_by(recipe.data, seed, "data")  # before the word on its length: what is no data has none
    if process_number() == 0 and not _has_length(data):
        warnings.warn(
            f"the data of {recipe.name} do not say how many mini-batches they have: if they never end, nor does an epoch: give "
            "--epoch-size or --mini-batches",
            SchedirWarning,
            stacklevel=1,
        )
    return data


def _has_length(data: object) -> bool:
    try:
        return len(data) >= 0  # type: ignore[arg-type]  # most things have one
    except TypeError:
        return False


def _num_measured(timeline: Timeline) -> tuple[int, int]:
    """Return of how many samples the largest mini-batches are that were measured, and how many are as large."""
    meta = timeline.meta
    return meta["mini_batch_size"], meta["measured_mini_batches"] - meta["smaller_mini_batches"]


def _num_samples(mini_batch: Any) -> int:
    return samples(mini_batch[0])
