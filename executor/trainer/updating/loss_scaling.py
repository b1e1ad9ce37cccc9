"""Scale losses so that gradients in float16 neither vanish nor overflow: `torch.amp.GradScaler`'s rules, for all stages at once.

    loss * scale ── backwards, in part in float16 ──▶ gradients / scale ── clip ──▶ update
                                                          │
        one is not finite, on any stage                   └──▶ no stage makes the update;  scale * backoff_factor
        growth_interval updates in a row were made ────────────────────────────────▶  scale * growth_factor

torch's own class belongs to one process, and looks at one optimizer after the other; here the stages' optimizers stand on several
devices and have one decision in common, so the rules are written down again. The tests hold them against torch's bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self

import torch
from torch import Tensor, nn

from schedir.errors import ArgumentError, RefusedError, RunError
from schedir.expect import expect
from schedir.ir.program import Program

DYNAMIC = "dynamic"
"""Stands for the scale that torch starts with, and its factors."""


@dataclass(frozen=True, slots=True)
class LossScaling:
    """How a loss scale starts and changes; the defaults are those of `torch.amp.GradScaler`."""

    scale: float = 65536.0
    """What losses are multiplied with at first; powers of 2 lose no digit."""
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    """Updates made in a row before the scale grows; 0: the scale never changes."""

    def __post_init__(self) -> None:
        for name, value in (
            ("scale", self.scale),
            ("growth_factor", self.growth_factor),
            ("backoff_factor", self.backoff_factor),
        ):
            expect(value, (int, float), f"loss_scaling: {name}", remedy="give a number")
        expect(self.growth_interval, int, "loss_scaling: growth_interval", remedy="give a whole number")
        if not 0 < self.scale < torch.finfo(torch.float32).max:
            raise ArgumentError(f"loss_scaling: scale {self.scale!r} is no finite number above 0: give one, say 1024")
        single = _float32(self.scale)
        # gradients are multiplied with the inverse, and torch's scaler keeps both in single precision
        if not single or not isfinite(_float32(1.0 / single)):
            raise ArgumentError(f"loss_scaling: scale {self.scale!r} is too small to divide by: give a larger one, say 1024")
        if not self.growth_factor > 1:
            raise ArgumentError(f"loss_scaling: growth_factor {self.growth_factor!r} lets no scale grow: give a number above 1")
        if not 0 < self.backoff_factor < 1:
            raise ArgumentError(
                f"loss_scaling: backoff_factor {self.backoff_factor!r} lets no scale fall: give one between 0 and 1"
            )
        if self.growth_interval < 0:
            raise ArgumentError(f"loss_scaling: growth_interval {self.growth_interval} is below 0: give 0 for a fixed scale")

    @classmethod
    def of(cls, given: LossScaling | float | str | None) -> Self | None:
        """Return what `dynamic`, or a number (a scale that never changes), stands for."""
        if given is None or isinstance(given, cls):
            return given
        if given == DYNAMIC:
            return cls()
        if isinstance(given, str):
            raise ArgumentError(f"loss_scaling {given!r} is unknown: use {DYNAMIC}, a number or a LossScaling")
        expect(given, (int, float), "loss_scaling", remedy=f"give {DYNAMIC}, a number or a LossScaling")
        return cls(float(given), growth_interval=0)  # type: ignore[arg-type]  # expect has looked at it

    @property
    def fixed(self) -> bool:
        """The scale never changes."""
        return self.growth_interval == 0


class LossScale:
    """The scale of one training, as it is now. Every process has its own, and all of them hear of the same updates."""

    def __init__(self, scaling: LossScaling) -> None:
        self._scaling = scaling
        self.value = _float32(scaling.scale)
        """What losses are multiplied with."""
        self._made = 0
        """Updates in a row that were made, since the scale changed last."""

    @property
    def inverse(self) -> float:
        """What gradients are multiplied with, in the precision of torch's scaler."""
        return _float32(1.0 / self.value)

    def note(self, *, made: bool) -> None:
        """Hear whether an update was made; raise RunError once no scale is left.

        That is torch's rule, but for the end: at 0, some 150 updates in a row that were left out, torch's scaler stays for ever.
        """
        if self._scaling.fixed:
            return
        if not made:
            self.value, self._made = _float32(self.value * self._scaling.backoff_factor), 0
            if self.value == 0:
                raise RunError(
                    "the loss scale fell to 0, update after update, and gradients are still not finite: it is the model that makes "
                    "them so, not the scale: look at its loss"
                )
            return
        self._made += 1
        if self._made == self._scaling.growth_interval:
            grown = _float32(self.value * self._scaling.growth_factor)
            # as torch's scaler: growth that would overflow leaves the scale as it is, and counts anew
            self.value, self._made = (grown if grown < float("inf") else self.value), 0

    def plain(self) -> dict[str, Any]:
        """Return plain values, for a checkpoint."""
        return {"scale": self.value, "made": self._made}

    def load(self, plain: Mapping[str, Any]) -> None:
        """Go on from what `plain` gave; a fixed scale stays what it is."""
        if not self._scaling.fixed:
            self.value, self._made = float(plain["scale"]), int(plain["made"])


def _float32(value: float) -> float:
    """Return the nearest number that a float32 holds, where torch's scaler keeps its own."""
    return torch.tensor(value, dtype=torch.float64).float().item()


def unscaled(gradients: list[Tensor | None], inverse: float) -> list[Tensor | None]:
    """Return gradients times the inverse of the scale, in new tensors: those given may be shared."""
    dense = [gradient for gradient in gradients if gradient is not None and not gradient.is_sparse]
    scaled = iter(torch._foreach_mul(dense, inverse) if dense else ())
    return [gradient if gradient is None else gradient * inverse if gradient.is_sparse else next(scaled) for gradient in gradients]


def check_scaling(scaling: LossScaling | None, program: Program, stages: tuple[nn.Module, ...]) -> None:
    """Raise RefusedError where a scale cannot be kept: without a flush if it changes, or for weights in float16."""
    if scaling is None:
        return
    if not program.weights.synchronous and not scaling.fixed:
        raise RefusedError(
            f"{program.name} has no moment at which all stages could leave an update out, and its micro-batches on their way have "
            "been scaled already when the scale would have to fall: give a fixed loss_scaling, say 1024.0 (then a stage leaves out "
            "its own updates), or use a schedule that flushes"
        )
    for number, stage in enumerate(stages):
        for name, parameter in stage.named_parameters():
            if parameter.requires_grad and parameter.dtype == torch.float16:
                raise RefusedError(
                    f"loss_scaling: {name} of stage {number} is float16, so its gradient would overflow in the sum that is to be "
                    "unscaled: keep weights in float32, and compute with autocast=torch.float16"
                )
