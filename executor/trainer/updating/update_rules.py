"""What a training asks for between its gradients and its updates."""

from __future__ import annotations

from dataclasses import dataclass

from executor.trainer.updating.clipping import Clip, NonFinite
from executor.trainer.updating.loss_scaling import LossScaling
from schedir.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class UpdateRules:
    """Clipping and loss scaling, as far as they are asked for."""

    clip: Clip | None = None
    scaling: LossScaling | None = None

    def __post_init__(self) -> None:
        if self.scaling is not None and self.clip is not None and self.clip.non_finite != NonFinite.SKIP:
            raise ArgumentError(
                f"clip: non_finite {str(self.clip.non_finite)!r} is against loss_scaling, which leaves such updates out: give one "
                "of the two"
            )

    def together(self, *, synchronous: bool) -> bool:
        """Tell whether one verdict decides on the updates of all stages."""
        return (self.clip is not None and self.clip.over_model) or (self.scaling is not None and synchronous)
