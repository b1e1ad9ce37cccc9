"""`schedir train`: really train a model by a schedule, with checkpoints, from the start or from where one stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedir.cli.flags.flags import as_command, flag, refuse_given, switch
from schedir.cli.flags.options import STAGES_HELP, RecomputeOptions, ScheduleOptions
from schedir.cli.flags.recipes import RECIPE_HELP
from schedir.cli.flags.values import count, length, natural, one_of, path, text
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe
    from executor.recipe.training_plan import TrainingPlan
    from schedir.workflows.plan_files import PlannedTraining

OUT = Path("out")
"""Where files go if no folder is named."""
NUM_DEVICES = 2
"""Devices where neither --devices nor the recipe's stages say how many."""
WORKERS = ("auto", "threads", "distributed", "cuda", "cuda-partitions")
ON_NAN = ("warn", "raise", "continue")
NORM_WAYS = ("plain", "deferred")
DYNAMIC = "dynamic"
WORKERS_HELP = (
    "What devices are: threads; distributed: processes that torchrun started; cuda: GPUs, on which devices take turns where there "
    "are fewer; cuda-partitions: shares of one GPU; auto, if not given: what was started, else GPUs if there are any, else threads."
)
NUM_MICRO_BATCHES = 4
"""Micro-batches where --micro-batches is not given."""
NUM_MINI_BATCHES = 100
"""Mini-batches at most where neither --epochs nor --mini-batches is given: data may be endless."""


def scaling(text: str) -> str | float:
    """Read a loss scale: the word for one that follows the gradients, or a number."""
    try:
        return text if text == DYNAMIC else length(text)
    except ArgumentError:
        raise ArgumentError(f"must be {DYNAMIC} or a finite number above 0") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainShape:
    """Shape."""

    devices: int | None = flag(
        "--devices", count, "N", f"Devices of the pipeline (p); if not given as many as the recipe's stages want, or {NUM_DEVICES}."
    )
    micro_batches: int | None = flag(
        "--micro-batches", count, "N", f"Micro-batches per update (m); {NUM_MICRO_BATCHES} if not given."
    )
    stages_per_device: int | None = flag("--stages-per-device", count, "N", STAGES_HELP)
    plan: Path | None = flag("--plan", path, "FILE", "A plan file (TOML): schedule, shape, and where the model is cut.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Training."""

    model: str | None = flag("--model", text, "RECIPE", f"What to train: {RECIPE_HELP}")
    mini_batch_size: int | None = flag(
        "--mini-batch-size", count, "N", "Samples of one update; the recipe's data are cut to it. As the data come if not given."
    )
    epochs: int | None = flag(
        "--epochs",
        count,
        "N",
        f"Times that the data are gone through; 1, and at most {NUM_MINI_BATCHES} mini-batches, if not given.",
    )
    epoch_size: int | None = flag(
        "--epoch-size", count, "N", "Mini-batches of one epoch, for data without an end; as far as the data go if not given."
    )
    mini_batches: int | None = flag(
        "--mini-batches", count, "N", "End behind so many mini-batches, those before a checkpoint counted."
    )
    lr: float | None = flag("--lr", length, "RATE", "Learning rate, in place of the recipe's.")
    loss_scaling: str | float | None = flag(
        "--loss-scaling", scaling, "dynamic|SCALE", "Multiply losses, for float16, in place of the recipe's; SCALE never changes."
    )
    batch_norm: str | None = flag(
        "--batch-norm",
        one_of(*NORM_WAYS),
        "|".join(NORM_WAYS),
        "Whether micro-batches move BatchNorm's running statistics, or a mini-batch, once; in place of the recipe's.",
    )
    on_nan: str | None = flag(
        "--on-nan", one_of(*ON_NAN), "|".join(ON_NAN), f"What to do where a loss is not finite; {ON_NAN[0]}, once, if not given."
    )
    seed: int | None = flag("--seed", natural, "N", "Seed of weights, data and dropout; 0 if not given.")
    workers: str | None = flag("--workers", one_of(*WORKERS), "KIND", WORKERS_HELP)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOutput:
    """Checkpoints and output."""

    out: Path | None = flag("--out", path, "FOLDER", f"Where checkpoints, picture, trace and report go; {OUT} if not given.")
    checkpoint_every: int | None = flag(
        "--checkpoint-every",
        count,
        "N",
        "Mini-batches between two checkpoints; if not given only one, which is written at the end anyway.",
    )
    resume: bool = switch("--resume", "Go on from the newest checkpoint in --out, or from CHECKPOINT.")

    @property
    def folder(self) -> Path:
        return self.out or OUT

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"


@as_command
def train(
    schedule: Annotated[
        str | None, typer.Argument(metavar="SCHEDULE", help="A schedule: its name, a file or a function; a plan has its own.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="CHECKPOINT", help="With --resume: a checkpoint, or a folder of them.")
    ] = None,
    *,
    shape: TrainShape,
    training: TrainOptions,
    output: TrainOutput,
    options: ScheduleOptions,
    recompute: RecomputeOptions,
) -> None:
    """Train a model for real: any schedule, as long as you like, checkpoints to go on from, a measured timeline at the end."""
    from executor.global_random import seed_all
    from executor.recipe.training_loop import train_recipe
    from executor.workers.distributed.environment import process_number
    from schedir.cli.flags.recipes import find_recipe
    from schedir.cli.screen.progress import Steps
    from schedir.cli.screen.train_progress import TrainProgress
    from schedir.cli.screen.train_text import print_outcome
    from schedir.workflows.files import check_folder
    from schedir.workflows.train_files import write_train_files

    if training.model is None:
        raise ArgumentError("train needs a model: give --model RECIPE, a model of ours or file.py:function")
    check_folder(output.folder)
    schedule, resume = _places(schedule, checkpoint, output)
    _refuse_with_resume(resume, training)
    seed_all(training.seed or 0)
    recipe = find_recipe(training.model)
    plan = _training_plan(recipe, schedule, shape, training=training, options=options, recompute=recompute)
    plan = replace(plan, checkpoint_every=output.checkpoint_every)
    is_first = process_number() == 0  # of several processes one prints and writes
    with Steps(quiet=not is_first) as steps:
        steps.say(f"{recipe.name}: {recipe.about}" if recipe.about else recipe.name)
        watch = TrainProgress(steps, total=plan.num_mini_batches)
        outcome = train_recipe(recipe, plan, folder=output.checkpoints, resume=resume, watch=watch)
    if not is_first:
        return
    if outcome.timeline is None:
        print(f"nothing is left to train: {outcome.checkpoint} stands behind {outcome.first_mini_batch} mini-batches")
        return
    files = write_train_files(output.folder, outcome, recipe=recipe, plan=plan)
    print_outcome(outcome)
    for file in files:
        print(f"wrote {file}")


def _places(schedule: str | None, checkpoint: Path | None, output: TrainOutput) -> tuple[str | None, Path | None]:
    """Return the schedule, and the checkpoint to go on from if there is one; with a plan the only word may be the checkpoint."""
    from executor.checkpoint.files import has_checkpoints

    if not output.resume:
        if checkpoint is not None:
            raise ArgumentError(f"CHECKPOINT {checkpoint} is given, but not --resume: give both or none")
        if has_checkpoints(output.checkpoints):
            raise ArgumentError(f"{output.checkpoints} holds checkpoints: give --resume to go on from them, or another --out")
        return schedule, None
    if checkpoint is None and schedule is not None and Path(schedule).is_dir():
        return None, Path(schedule)
    return schedule, checkpoint or output.checkpoints


def _refuse_with_resume(resume: Path | None, training: TrainOptions) -> None:
    for name in ("seed", "lr"):
        if resume is not None and getattr(training, name) is not None:
            raise ArgumentError(f"--{name}: a training that is resumed has its own: leave it out")


def _training_plan(
    recipe: Recipe,
    schedule: str | None,
    shape: TrainShape,
    *,
    training: TrainOptions,
    options: ScheduleOptions,
    recompute: RecomputeOptions,
) -> TrainingPlan:
    """Put what the flags, or the plan, say into one."""
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
    }
    if shape.plan is not None:
        return _from_plan(read_plan(shape.plan), schedule, shape, recompute=recompute, common=common)
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
        **common,
    )


def _counts(recipe: Recipe, schedule: str, shape: TrainShape) -> tuple[int | None, int | None]:
    """Return devices and micro-batches; a program file has its own."""
    from executor.workers.distributed.environment import process_count, started_together
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
