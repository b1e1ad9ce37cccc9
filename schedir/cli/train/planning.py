"""From flags, or a plan file, to how a recipe is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schedir.cli.flags.flags import refuse_given
from schedir.cli.flags.options import RecomputeOptions, ScheduleOptions
from schedir.cli.flags.workers import TIMEOUT_S
from schedir.cli.train.options import (
    NUM_DEVICES,
    NUM_MICRO_BATCHES,
    NUM_MINI_BATCHES,
    ON_NAN,
    TrainOptions,
    TrainOutput,
    TrainShape,
)
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe
    from executor.recipe.training_plan import TrainingPlan
    from schedir.workflows.plan_files import PlannedTraining


def training_plan(
    recipe: Recipe,
    schedule: str | None,
    shape: TrainShape,
    *,
    training: TrainOptions,
    output: TrainOutput,
    options: ScheduleOptions,
    recompute: RecomputeOptions,
) -> TrainingPlan:
    """Put what the flags, or the plan, say into one; raise SchedirError for what does not go together."""
    from executor.recipe.training_plan import TrainingPlan
    from executor.workers.choice import machines_workers
    from schedir.workflows.plan_files import read_plan

    limited = training.epochs is None and training.mini_batches is None
    common: dict[str, Any] = {
        "options": options.given(),
        "workers": machines_workers() if training.workers in {None, "auto"} else training.workers,
        "seed": training.seed or 0,
        "lr": training.lr,
        "loss_scaling": training.loss_scaling,
        "batch_norm": training.batch_norm,
        "on_nan": training.on_nan or ON_NAN[0],
        "mini_batch_size": training.mini_batch_size,
        "epoch_size": training.epoch_size,
        "num_epochs": 1 if limited else training.epochs,
        "num_mini_batches": NUM_MINI_BATCHES if limited else training.mini_batches,
        "checkpoint_every": output.checkpoint_every,
        "keep_last": output.keep_last,
        "evaluate_every": output.evaluate_every,
    }
    if shape.plan is not None:
        plan = read_plan(shape.plan)
        common["timeout"] = training.timeout or plan.timeout or TIMEOUT_S
        return _from_plan(plan, schedule, shape, recompute=recompute, common=common)
    if schedule is None:
        raise ArgumentError("train needs a schedule: give SCHEDULE, as 1f1b or xpipe, or --plan FILE")
    devices, micro_batches = _counts(recipe, schedule, shape)
    return TrainingPlan(
        schedule=schedule,
        num_devices=devices,
        num_micro_batches=micro_batches,
        num_stages=_num_stages(recipe, schedule, shape, options=options, counts=(devices, micro_batches)),
        stages_per_device=shape.stages_per_device,
        recompute=recompute.recompute or "never",
        recompute_start=recompute.recompute_start or "early",
        timeout=training.timeout or TIMEOUT_S,
        **common,
    )


def _counts(recipe: Recipe, schedule: str, shape: TrainShape) -> tuple[int | None, int | None]:
    """Return devices and micro-batches; a program file has its own."""
    from executor.workers.environment import process_count, started_together
    from schedir.interop.program_files import names_program_file

    if names_program_file(schedule):
        return shape.devices, shape.micro_batches
    usual = process_count() if started_together() else NUM_DEVICES
    devices = shape.devices if recipe.stages is not None else shape.devices or usual
    return devices, shape.micro_batches or NUM_MICRO_BATCHES


def _num_stages(
    recipe: Recipe, schedule: str, shape: TrainShape, *, options: ScheduleOptions, counts: tuple[int | None, int | None]
) -> int | None:
    """Return into how many stages a whole model has to be cut."""
    from schedir.compiler import find_program

    if recipe.stages is not None:
        return None
    devices, micro_batches = counts
    program = find_program(
        schedule,
        num_devices=devices,
        num_micro_batches=micro_batches,
        stages_per_device=shape.stages_per_device,
        **options.given(),
    )
    return program.num_stages


def _from_plan(
    plan: PlannedTraining, schedule: str | None, shape: TrainShape, *, recompute: RecomputeOptions, common: dict[str, Any]
) -> TrainingPlan:
    from executor.recipe.training_plan import TrainingPlan

    if schedule is not None:
        raise ArgumentError(f"SCHEDULE {schedule} is given, but --plan {shape.plan} has one: leave one of them out")
    refuse_given(shape, f"--plan {shape.plan} says it", but=("plan",))
    refuse_given(recompute, f"--plan {shape.plan} says it")
    size = None if plan.micro_batch_size is None else plan.micro_batch_size * plan.num_micro_batches
    return TrainingPlan(
        schedule=plan.schedule,
        num_devices=plan.num_devices,
        num_micro_batches=plan.num_micro_batches,
        num_stages=None if plan.cuts is None else len(plan.cuts) + 1,
        at=plan.cuts or None,
        stages_per_device=plan.stages_per_device,
        recompute=plan.recompute,
        recompute_start=plan.recompute_start,
        plan=str(shape.plan),
        **common | {"mini_batch_size": common["mini_batch_size"] or size},
    )
