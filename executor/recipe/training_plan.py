"""How a recipe is trained: everything that `schedir train` is told, and the trainer that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from executor.recipe.recipe import Recipe
from executor.trainer.trainer import Trainer
from schedir.errors import ArgumentError, RefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How a recipe is trained."""

    schedule: str
    num_devices: int | None
    """None: as many as the recipe's stages want."""
    num_micro_batches: int | None
    """None: those of a program file."""
    num_stages: int | None = None
    """None: as the recipe has them."""
    at: tuple[str, ...] | None = None
    """Modules where the stages but the first begin, in place of equal parameters."""
    stages_per_device: int | None = None
    recompute: str = "never"
    recompute_start: str = "early"
    options: dict[str, Any] = field(default_factory=dict)
    """The schedule's own."""
    workers: str = "auto"
    seed: int = 0
    lr: float | None = None
    """In place of what the recipe's optimizers start with."""
    loss_scaling: float | str | None = None
    """In place of the recipe's."""
    batch_norm: str | None = None
    """In place of the recipe's."""
    on_nan: str = "warn"
    """What is done about a loss that is not finite: see `executor.stage.loss_guard`."""
    mini_batch_size: int | None = None
    num_epochs: int | None = None
    epoch_size: int | None = None
    """In place of the recipe's."""
    num_mini_batches: int | None = None
    """The training ends after so many, those before a checkpoint counted; whichever of the two comes first."""
    checkpoint_every: int | None = None
    """Mini-batches between two checkpoints, beside the one at the end."""
    keep_last: int | None = None
    """Checkpoints that stay, the newest; None: all."""
    evaluate_every: int | None = None
    """Mini-batches between two evaluations; None: one after every epoch."""
    timeout: float = 600.0
    """Seconds that anybody waits for a device or process, as `Trainer` takes it."""
    plan: str | None = None
    """The plan file that it follows, noted in checkpoints."""

    def __post_init__(self) -> None:
        # each such mini-batch would be left out, which the training itself finds at its end only
        size, micro_batches = self.mini_batch_size, self.num_micro_batches
        if size is not None and micro_batches is not None and size < micro_batches:
            raise ArgumentError(
                f"mini_batch_size {size} is less than the {micro_batches} micro-batches: give {micro_batches} samples at least, or "
                "fewer micro-batches"
            )


def make_trainer(recipe: Recipe, plan: TrainingPlan) -> Trainer:
    """Return a trainer of a recipe; raise ArgumentError or RefusedError for what does not fit together."""
    return Trainer(
        _stages(recipe, plan),
        schedule=plan.schedule,
        num_micro_batches=plan.num_micro_batches,
        num_devices=plan.num_devices,
        stages_per_device=plan.stages_per_device,
        recompute=plan.recompute,
        recompute_start=plan.recompute_start,
        loss=recipe.loss,
        optimizer=recipe.optimizer if plan.lr is None else _with_rate(recipe.optimizer, plan.lr),
        lr_scheduler=recipe.lr_scheduler,
        loss_weight=recipe.loss_weight,
        loss_reduction=recipe.loss_reduction,
        adam_prediction=recipe.adam_prediction,
        clip=recipe.clip,
        autocast=recipe.autocast,
        loss_scaling=recipe.loss_scaling if plan.loss_scaling is None else plan.loss_scaling,
        on_nan=plan.on_nan,
        batch_norm=recipe.batch_norm if plan.batch_norm is None else plan.batch_norm,
        metrics=recipe.metrics,
        workers=plan.workers,
        seed=plan.seed,
        timeout=plan.timeout,
        **plan.options,
    )


def _stages(recipe: Recipe, plan: TrainingPlan) -> Sequence[nn.Module]:
    """Return the model as the plan cuts it; what does not fit names the plan's file, which may be one for another model."""
    try:
        return recipe.cut(plan.num_stages, at=plan.at)
    except (ArgumentError, RefusedError) as error:
        if plan.plan is None:
            raise
        raise type(error)(f"{plan.plan} does not fit {recipe.name}: {error}") from error


def _with_rate(make: Callable[[list[nn.Parameter]], Optimizer], rate: float) -> Callable[[list[nn.Parameter]], Optimizer]:
    def made(parameters: list[nn.Parameter]) -> Optimizer:
        optimizer = make(parameters)
        for group in optimizer.param_groups:
            group["lr"] = rate
        return optimizer

    return made
