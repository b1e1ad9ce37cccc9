"""The mini-batches of one training: those of its recipe as its plan wants them, from the start or from a checkpoint's place.

    data ── epochs ── cut to the plan's size ── too small ones left out ── until the plan has enough

The place is kept in checkpoints, so that a training that goes on takes the data up where they stood.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from executor.checkpoint.checkpoint import Checkpoint
from executor.model.data import samples
from executor.recipe.epochs import EpochPlace, Epochs, given_by
from executor.recipe.recipe import Recipe
from executor.recipe.training_plan import TrainingPlan
from executor.trainer.trainer import Trainer
from executor.workers.environment import process_number
from schedir.errors import ArgumentError, FormatError, SchedirWarning
from schedir.expect import kind_of

_END: Any = object()
"""What follows the last mini-batch: None may be one of the user's, by mistake."""
_MOST_LEFT_OUT = 1000
"""So many mini-batches one after the other that are too small are a mistake, not what is left at an epoch's end."""


class TrainingData:
    """Yields mini-batches that are large enough, and knows where in the data they stand."""

    def __init__(self, recipe: Recipe, plan: TrainingPlan, trainer: Trainer) -> None:
        """Take the trainer whose seed the data are of, and which counts what was trained on."""
        self._recipe, self._plan, self._trainer = recipe, plan, trainer
        self._size = plan.mini_batch_size
        self._epochs = self._make_epochs()
        self._given = 0
        self.left_out = 0
        """Mini-batches of fewer samples than there are micro-batches."""

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

    @property
    def epoch(self) -> int | None:
        """The epoch of the newest mini-batch; None before the first."""
        return None if self._epochs.place is None else self._epochs.place.epoch

    def plain(self) -> dict[str, Any]:
        """Return the place as plain values, for a checkpoint."""
        return {
            "place": None if self._epochs.place is None else self._epochs.place.plain(),
            "mini_batch_size": self._size,
        }

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Take the data up where they stood, with that training's seed and size of mini-batches.

        Raises ArgumentError where the checkpoint has no place, or another size, FormatError where its place is none.
        """
        if "place" not in checkpoint.data:
            raise ArgumentError(
                f"{checkpoint.path} does not say where in the data it stands: resume one that `schedir train` wrote"
            )
        size, place = _place_of(checkpoint)
        if self._size not in {None, size}:
            raise ArgumentError(
                f"mini_batch_size {self._size}: {checkpoint.path} has {size or 'that of the data'}, which its place in the data "
                "counts: leave it out"
            )
        self._size = size
        # anew, since the trainer has that training's seed by now
        self._epochs = self._make_epochs()
        if place is not None:
            self._epochs.go_on_from(place)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield mini-batches until there are enough; raise ArgumentError where there are none, or all seem to be too small."""
        limit, stream = self._plan.num_mini_batches, iter(self._epochs)
        left_out_in_a_row, first_epoch = 0, 0  # too small, one after the other, and the epoch of the first of them
        # the limit is looked at before the data are asked for one more: they may be slow, or draw random numbers
        while limit is None or self._trainer.mini_batch < limit:
            mini_batch = next(stream, _END)
            if mini_batch is _END:
                break
            epoch = self.epoch
            assert epoch is not None
            if not self._is_too_small(mini_batch):
                left_out_in_a_row = 0
                self._given += 1
                yield mini_batch
                continue
            self.left_out += 1
            first_epoch = first_epoch if left_out_in_a_row else epoch
            left_out_in_a_row += 1
            # a whole epoch has given nothing, or data that may be endless seem never to
            if epoch > first_epoch + 1 or left_out_in_a_row >= _MOST_LEFT_OUT:
                raise ArgumentError(self._nothing(left_out_in_a_row))
        # behind a checkpoint nothing may be left
        if not self._given and not self._trainer.mini_batch:
            raise ArgumentError(self._nothing())

    def _is_too_small(self, mini_batch: Any) -> bool:
        if not isinstance(mini_batch, tuple | list) or len(mini_batch) != 2:
            raise ArgumentError(f"a mini-batch is {kind_of(mini_batch)}, not a pair: give (input, target)")
        return samples(mini_batch[0]) < self._trainer.program.num_micro_batches

    def _nothing(self, left_out_in_a_row: int = 0) -> str:
        if self.left_out:
            which = f"{left_out_in_a_row} mini-batches one after the other have" if self._given else "every mini-batch has"
            return (
                f"{which} fewer samples than the {self._trainer.program.num_micro_batches} micro-batches: make them "
                "larger, or use fewer micro-batches"
            )
        return "there are no mini-batches: let data give at least one (input, target)"


def _place_of(checkpoint: Checkpoint) -> tuple[int | None, EpochPlace | None]:
    """Return the size of that training's mini-batches, and where in the data it stood."""
    data: Mapping[str, Any] = checkpoint.data
    try:
        return data["mini_batch_size"], None if data["place"] is None else EpochPlace.of(data["place"])
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise no_place(checkpoint, error) from error


def no_place(checkpoint: Checkpoint, error: Exception) -> FormatError:
    """Return the error for a checkpoint whose data are not as `schedir train` writes them."""
    return FormatError(
        f"{checkpoint.path}: its place in the data is none ({type(error).__name__}: {error}): take another checkpoint"
    )


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
