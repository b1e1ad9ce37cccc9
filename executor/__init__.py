"""Train with PyTorch as a task graph says, and measure the timeline. Importing this package loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executor.emulation import emulate
    from executor.model.pipeline import Pipeline
    from executor.model.skips import Skip
    from executor.model.stages import Stages
    from executor.profiling.options import ProfileOptions
    from executor.profiling.profiling import profile
    from executor.recipe.recipe import Recipe
    from executor.trainer.step_result import Step
    from executor.trainer.trainer import Trainer
    from executor.trainer.updating.clipping import Clip
    from executor.trainer.updating.loss_scaling import LossScaling
    from executor.training import Run, train

_HOMES = {
    "Clip": "executor.trainer.updating.clipping",
    "LossScaling": "executor.trainer.updating.loss_scaling",
    "Pipeline": "executor.model.pipeline",
    "ProfileOptions": "executor.profiling.options",
    "Recipe": "executor.recipe.recipe",
    "Skip": "executor.model.skips",
    "Stages": "executor.model.stages",
    "Run": "executor.training",
    "Step": "executor.trainer.step_result",
    "Trainer": "executor.trainer.trainer",
    "emulate": "executor.emulation",
    "profile": "executor.profiling.profiling",
    "train": "executor.training",
}

__all__ = [
    "Clip",
    "LossScaling",
    "Pipeline",
    "ProfileOptions",
    "Recipe",
    "Run",
    "Skip",
    "Stages",
    "Step",
    "Trainer",
    "emulate",
    "profile",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: emulated devices need no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
