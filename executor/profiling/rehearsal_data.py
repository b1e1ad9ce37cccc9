"""Data to rehearse with: a recipe's samples, regrouped into mini-batches of the size that is to be measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle, islice

import torch

from executor.model.data import joined, rows, samples, side
from executor.recipe.recipe import MiniBatch
from schedir.errors import ArgumentError

DISTINCT = 4
"""Mini-batches that differ; they are used again and again, so that drawing data costs nothing while others are timed."""


class RehearsalData:
    """A few mini-batches of `num_micro_batches` micro-batches of equal size."""

    def __init__(self, mini_batches: Iterable[MiniBatch], num_micro_batches: int, micro_batch_size: int | None) -> None:
        """Draw from the data; `micro_batch_size` None: its own first mini-batch, in parts of equal size.

        Raises ArgumentError where there are no data, or fewer samples in a mini-batch than micro-batches.
        """
        source = iter(mini_batches)
        first = next(source, None)
        if first is None:
            raise ArgumentError("the recipe's data is empty: give at least one (input, target)")
        own = samples(first[0]) // num_micro_batches
        if micro_batch_size is None and own == 0:
            raise ArgumentError(
                f"{samples(first[0])} samples do not make {num_micro_batches} micro-batches: give larger mini-batches, or fewer"
            )
        self.micro_batch_size = own if micro_batch_size is None else micro_batch_size
        """Samples of a micro-batch."""
        size = self.micro_batch_size * num_micro_batches
        taken, count = [first], samples(first[0])
        while count < DISTINCT * size and (following := next(source, None)) is not None:
            taken.append(following)
            count += samples(following[0])
        self._mini_batches = _regrouped(taken, size, min(DISTINCT, max(1, count // size)))

    def micro_batch(self) -> MiniBatch:
        """Return one micro-batch."""
        inputs, target = self._mini_batches[0]
        return rows(inputs, slice(self.micro_batch_size)), rows(target, slice(self.micro_batch_size))

    def mini_batches(self, count: int) -> list[MiniBatch]:
        """Return so many mini-batches."""
        return list(islice(cycle(self._mini_batches), count))


def _regrouped(taken: Sequence[MiniBatch], size: int, count: int) -> list[MiniBatch]:
    """Return `count` mini-batches of `size` samples; samples are repeated where there are fewer."""
    inputs, targets = (joined([side(pair[place]) for pair in taken]) for place in (0, 1))
    available = samples(inputs)
    chosen = [torch.tensor([(number * size + row) % available for row in range(size)]) for number in range(count)]
    return [(rows(inputs, each), rows(targets, each)) for each in chosen]
