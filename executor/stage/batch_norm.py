"""Running statistics of BatchNorm over whole mini-batches, whatever the number of micro-batches that they are cut into.

    plain      every micro-batch moves the running statistics, by its own mean and variance: m small steps an update
    deferred   micro-batches are put together, and move them once, behind the mini-batch's update: as one BatchNorm over all would

Either way a micro-batch is normalized by its own statistics in training, and by the running ones in evaluation. GPipe (Huang et al.
2019, section 2.2) describes the second: a moving average over mini-batches. Recomputation counts for neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


@dataclass(slots=True)
class Moments:
    """Count, mean and sum of squared deviations of numbers, by channel, in float64."""

    count: float
    mean: Tensor
    squares: Tensor

    def add(self, other: Moments) -> None:
        """Take in other numbers (Chan, Golub and LeVeque 1983: the variance of two sets put together)."""
        total = self.count + other.count
        apart = other.mean - self.mean
        self.mean = self.mean + apart * (other.count / total)
        self.squares = self.squares + other.squares + apart.square() * (self.count * other.count / total)
        self.count = total

    def sums(self) -> tuple[Tensor, ...]:
        """Return count, sum and sum of squares."""
        return self.mean.new_tensor(self.count), self.mean * self.count, self.squares + self.mean.square() * self.count

    @classmethod
    def of_sums(cls, count: Tensor | None, total: Tensor | None, squares: Tensor | None) -> Moments | None:
        """Return what `sums` gave, or its sum over several; None where there is nothing."""
        if count is None or total is None or squares is None:
            return None
        number = float(count)
        # rounding may leave less than 0 where all numbers are nearly equal
        return cls(number, total / number, (squares - total.square() / number).clamp(min=0))


_PARTS = 3
"""Tensors of `Moments.sums`."""


class DeferredStatistics:
    """The BatchNorm layers of one copy of a stage."""

    def __init__(self, module: nn.Module) -> None:
        self._norms = [each for each in module.modules() if isinstance(each, _BatchNorm) and each.running_mean is not None]
        self._moments: dict[int, list[Moments | None]] = {}
        """By mini-batch: those of every layer so far."""

    def begin(self) -> None:
        """Forget what no update has come to."""
        self._moments.clear()

    @contextmanager
    def collecting(self, mini_batch: int) -> Iterator[None]:
        """Run the forward of one of a mini-batch's micro-batches inside: its statistics are kept, the running ones stay.

        A layer in training mode writes to other buffers meanwhile. With momentum 1 they get what the layer has computed itself.
        """
        norms = [(number, norm) for number, norm in enumerate(self._norms) if norm.training]
        kept = self._moments.setdefault(mini_batch, [None] * len(self._norms))
        swapped = [_Swapped(norm) for _, norm in norms]
        try:
            for (number, _), each in zip(norms, swapped, strict=True):
                each.enter(number, kept)
            yield
        finally:
            for each in swapped:
                each.leave()

    def share(self, mini_batch: int) -> list[Tensor | None]:
        """Return what this replica knows of a mini-batch, as numbers that add up: by layer count, sum, sum of squares."""
        kept = self._moments.pop(mini_batch, [None] * len(self._norms))
        return [part for moments in kept for part in ((None,) * _PARTS if moments is None else moments.sums())]

    def take_total(self, mini_batch: int, total: Sequence[Tensor | None]) -> None:
        """Take what all replicas know of a mini-batch, the sum of their shares."""
        rows = [total[first : first + _PARTS] for first in range(0, len(total), _PARTS)]
        self._moments[mini_batch] = [Moments.of_sums(*row) for row in rows]

    def commit(self, mini_batch: int) -> None:
        """Move the running statistics by all mini-batches up to one: its update has come."""
        # an update names its last mini-batch; under 1F1B-RR it is of a whole round of them
        for number in sorted(each for each in self._moments if each <= mini_batch):
            for norm, moments in zip(self._norms, self._moments.pop(number), strict=True):
                if moments is not None:
                    _move(norm, moments)


class _Swapped:
    """A layer whose buffers are others for one forward."""

    def __init__(self, norm: _BatchNorm) -> None:
        self._norm, self._momentum = norm, norm.momentum
        self._buffers = dict(norm._buffers)
        self._handle: Any = None

    def enter(self, number: int, kept: list[Moments | None]) -> None:
        """Let the layer write elsewhere, and keep what it writes behind every call."""
        for name, buffer in self._buffers.items():
            if buffer is not None:
                # zeros, not empty memory: momentum 1 multiplies what stands there by 0, and a NaN would stay one
                self._norm._buffers[name] = torch.zeros_like(buffer)
        self._norm.momentum = 1.0

        def keep(norm: Any, _: object, output: Tensor) -> None:
            found = _moments_of(norm, output)
            before = kept[number]
            if before is None:
                kept[number] = found
            else:
                before.add(found)

        self._handle = self._norm.register_forward_hook(keep)

    def leave(self) -> None:
        """Give the layer its own buffers back."""
        if self._handle is not None:
            self._handle.remove()
        self._norm._buffers.update(self._buffers)
        self._norm.momentum = self._momentum


def _moments_of(norm: Any, output: Tensor) -> Moments:
    """Return what a layer has just computed of its input, which has the shape of its output; torch's variance is unbiased here."""
    count = output.numel() / output.shape[1]
    # copies: a layer that is called twice in one forward writes to the same buffers again
    return Moments(count, norm.running_mean.to(torch.float64, copy=True), norm.running_var.double() * (count - 1))


def _move(norm: Any, moments: Moments) -> None:
    """Move running statistics as the layer itself does; without momentum they are the mean over all mini-batches so far."""
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    factor = norm.momentum if norm.momentum is not None else 1.0 / float(norm.num_batches_tracked)
    # unbiased, as torch keeps it; what a layer normalizes by in training is the biased one
    variance = moments.squares / (moments.count - 1)
    with torch.no_grad():
        for running, found in ((norm.running_mean, moments.mean), (norm.running_var, variance)):
            running.mul_(1 - factor).add_(found.to(running.dtype), alpha=factor)
