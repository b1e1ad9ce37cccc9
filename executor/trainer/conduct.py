"""How a training is conducted, whatever its model and its schedule are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from executor.stage.loss_guard import OnNan
from executor.trainer.updating.update_rules import UpdateRules
from executor.workers.choice import WorkersKind
from schedir.errors import ArgumentError
from schedir.expect import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """What a trainer is told beside its model and its schedule."""

    workers: WorkersKind
    seed: int
    """For what stages draw."""
    autocast: torch.dtype | None
    """A type to compute in; None: as the thread that makes the trainer does."""
    rules: UpdateRules
    """What stands between gradients and updates."""
    on_nan: OnNan
    timeout_s: float
    """Seconds that anybody waits for a device."""

    def __post_init__(self) -> None:
        dtype: object = self.autocast
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ArgumentError(f"autocast {shown(dtype)} is no type to compute in: give torch.bfloat16 or torch.float16")
