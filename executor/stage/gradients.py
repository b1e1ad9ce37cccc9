"""Sums of weight gradients: one per update that is not complete yet, and the total over replicas or stages of a tie."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, ...]
"""By tensor of a message, or by leaf: its gradient, None if nothing depends on it."""
Sums = Sequence[Tensor | None]
"""Gradients of one stage's update, by parameter."""


class GradientSums:
    """Sums of one stage's gradients by update, in the order in which its backwards run."""

    def __init__(self) -> None:
        self._sums: dict[int, _Sum] = {}

    def add(self, update: int, gradients: Sequence[Tensor | None]) -> None:
        """Add the gradients of one micro-batch; None adds nothing."""
        if update in self._sums:
            self._sums[update].add(gradients)
        else:
            self._sums[update] = _Sum(gradients)

    def peek(self, update: int) -> Sequence[Tensor | None]:
        """Return the sum of an update as it is now."""
        return self._sums[update].gradients

    def take(self, update: int) -> list[Tensor | None]:
        """Return the sum of an update and forget it."""
        return self._sums.pop(update).gradients

    def clear(self) -> None:
        """Forget all sums."""
        self._sums.clear()


class _Sum:
    """The first gradients are taken as they are. They may be shared with other tensors of their graph, so the second make new
    tensors, and only from then on is added in place.
    """

    def __init__(self, gradients: Sequence[Tensor | None]) -> None:
        self.gradients = list(gradients)
        self._owned = [False] * len(self.gradients)

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        before, after = _dense(self.gradients), _dense(gradients)
        # the fast way takes dense gradients of every parameter only
        if before is None or after is None:
            for number, gradient in enumerate(gradients):
                self._add_one(number, gradient)
        elif all(self._owned):
            torch._foreach_add_(before, after)  # as torch's own optimizers do: one call for all
        else:
            self.gradients = list(torch._foreach_add(before, after))
            self._owned = [True] * len(before)

    def _add_one(self, number: int, gradient: Tensor | None) -> None:
        before = self.gradients[number]
        if gradient is None:
            return
        if before is None:
            self.gradients[number] = gradient
        elif self._owned[number] and (gradient.is_sparse or not before.is_sparse):
            before.add_(gradient)
        else:
            self.gradients[number], self._owned[number] = added(before, gradient), True


def _dense(gradients: Sequence[Tensor | None]) -> list[Tensor] | None:
    """Return the gradients if all are there and none is sparse."""
    found = [gradient for gradient in gradients if gradient is not None and not gradient.is_sparse]
    return found if len(found) == len(gradients) and found else None


def added(before: Tensor, gradient: Tensor) -> Tensor:
    """Return the sum of two gradients, either of which may be sparse; torch itself adds no dense one to a sparse one."""
    return gradient + before if before.is_sparse and not gradient.is_sparse else before + gradient


def mean_over_members(sums: Sequence[Sequence[Tensor | None]], num_averaged: int) -> list[Tensor | None]:
    """Add sums, of replicas or of stages that hold the same weights, in their order and divide by the number of mini-batches.

    Source of the division: C11 of the scalar cases, 1F1B-RR.
    """
    total = _Sum(sums[0])
    for gradients in sums[1:]:
        total.add(gradients)
    if num_averaged == 1:
        return total.gradients
    return [None if gradient is None else gradient / num_averaged for gradient in total.gradients]
