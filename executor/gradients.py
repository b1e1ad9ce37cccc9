"""Sums of weight gradients: one per update that is not complete yet, and the total over a stage's replicas."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


class GradientSums:
    """Sums of one stage's gradients by update, in the order in which its backwards run."""

    def __init__(self) -> None:
        self._sums: dict[int, list[Tensor | None]] = {}
        self._owned: dict[int, list[bool]] = {}

    def add(self, update: int, gradients: Sequence[Tensor | None]) -> None:
        """Add the gradients of one micro-batch; None adds nothing.

        The first is taken as it is; it may be shared with other tensors of the graph, so the second makes a new tensor, and
        only from then on is added in place.
        """
        if update not in self._sums:
            self._sums[update], self._owned[update] = list(gradients), [False] * len(gradients)
            return
        sums, owned = self._sums[update], self._owned[update]
        for number, gradient in enumerate(gradients):
            before = sums[number]
            if gradient is None:
                continue
            if before is None:
                sums[number] = gradient
            elif owned[number]:
                before.add_(gradient)
            else:
                sums[number], owned[number] = before + gradient, True

    def take(self, update: int) -> list[Tensor | None]:
        """Return the sum of an update and forget it."""
        del self._owned[update]
        return self._sums.pop(update)

    def clear(self) -> None:
        """Forget all sums."""
        self._sums.clear()
        self._owned.clear()


def mean_over_replicas(sums: Sequence[Sequence[Tensor | None]], num_averaged: int) -> list[Tensor | None]:
    """Add the replicas' sums in their order and divide by the number of mini-batches (C11 of the scalar cases: 1F1B-RR)."""
    total = GradientSums()
    for gradients in sums:
        total.add(0, gradients)
    added = total.take(0)
    if num_averaged == 1:
        return added
    return [None if gradient is None else gradient / num_averaged for gradient in added]
