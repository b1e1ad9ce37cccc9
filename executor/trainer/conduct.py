"""How a training is conducted, whatever its model and its schedule are."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from executor.stage.loss_guard import OnNan
from executor.trainer.updating.update_rules import UpdateRules
from executor.workers.choice import WorkersKind


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
