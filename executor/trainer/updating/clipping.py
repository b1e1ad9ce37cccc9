"""Clip gradients by their norm, over the whole model or stage by stage.

The factor is max_norm / (norm + 1e-6), at most 1, as `torch.nn.utils.clip_grad_norm_` has it. Gradients that are not finite have no
norm to clip by: their update is left out, unless something else is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from executor.stage.gradients import Sums
from schedir.errors import ArgumentError
from schedir.expect import expect

EPSILON = 1e-6


class NonFinite(StrEnum):
    """What becomes of an update whose gradients are not finite."""

    SKIP = "skip"
    """It is left out, on all stages alike if the norm is that of the model."""
    RAISE = "raise"
    """The training ends before it, as by torch's `error_if_nonfinite=True`."""
    APPLY = "apply"
    """It is made, and weights are not finite from then on, as by torch's `clip_grad_norm_`; without a largest norm with the
    gradients as they are, as if nothing clipped."""


class Per(StrEnum):
    """What a norm is taken over."""

    MODEL = "model"
    STAGE = "stage"


@dataclass(frozen=True, slots=True)
class Clip:
    """How gradients are clipped before an update."""

    max_norm: float = math.inf
    """Largest Euclidean norm; infinite: none is clipped."""
    per: str = Per.MODEL
    """What the norm is taken over: model or stage."""
    non_finite: str = NonFinite.SKIP
    """What becomes of an update whose gradients are not finite: skip, raise or apply."""

    def __post_init__(self) -> None:
        expect(self.max_norm, (int, float), "clip: max_norm", remedy="give a number above 0")
        if not self.max_norm > 0:
            raise ArgumentError(f"clip: max_norm {self.max_norm!r} is no norm: give a number above 0")
        for name, value, choices in (("per", self.per, Per), ("non_finite", self.non_finite, NonFinite)):
            if value not in tuple(choices):
                raise ArgumentError(f"clip: {name} {value!r} is unknown: use {' or '.join(choices)}")

    @classmethod
    def of(cls, clip: Clip | float | None) -> Clip | None:
        """Return what a number (the norm over the model) stands for."""
        return clip if clip is None or isinstance(clip, Clip) else cls(clip)

    @property
    def over_model(self) -> bool:
        """The norm is that of all stages' gradients together."""
        return self.per == Per.MODEL

    def clipped(self, gradients: Sums, squares: float) -> list[Tensor | None]:
        """Return the gradients to update with, given the sum of squares that decides."""
        if math.isinf(self.max_norm):
            return list(gradients)  # inf / inf would be no number, and spoil gradients of parameters that have finite ones
        factor = self.max_norm / (math.sqrt(squares) + EPSILON)  # no number where the squares are none: then no gradient is one
        if factor >= 1:
            return list(gradients)
        return [None if gradient is None else gradient * factor for gradient in gradients]


def squares_of(gradients: Sums) -> float:
    """Return the sum of squares of all gradients."""
    found = sum_of_squares(gradients)
    return 0.0 if found is None else float(found)


def sum_of_squares(gradients: Sums) -> Tensor | None:
    """Return the sum of squares of all gradients where they lie, float64, without waiting for it; None if there are no numbers."""
    found = _dense_parts(gradients)
    if not found:
        return None
    # in double precision: a square of a float16 norm may be too large for it
    norms = torch.stack([norm.double() for norm in torch._foreach_norm(found)])
    return (norms * norms).sum()


def are_finite(gradients: Sums) -> bool:
    """Tell whether every number of every gradient is finite."""
    found = _dense_parts(gradients)
    if not found:
        return True
    largest = torch.stack([norm.double() for norm in torch._foreach_norm(found, math.inf)])
    return bool(largest.isfinite().all())


def _dense_parts(gradients: Sums) -> list[Tensor]:
    """Return tensors with all the numbers of the gradients that are not empty."""
    # a row that stands in a sparse gradient twice counts as the sum of both; of no numbers torch finds no largest
    found = (gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients if gradient is not None)
    return [gradient for gradient in found if gradient.numel()]
