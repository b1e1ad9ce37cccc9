"""What a training leaves in its folder beside its checkpoints.

losses.csv, evaluations.csv    see `train_log`, which writes them while training goes on
loss.png            losses over mini-batches, those before a checkpoint too, with validation, learning rate and gradient norm
train.png           the newest mini-batches of full size as they were measured: under a flush the one of median length
train.trace.json    the same timeline whole, for Perfetto, `schedir plot` and `schedir compare`
report.json         schedir.train/2, of the whole training; in `runs` are the commands that came to their end, this one last
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from schedir.errors import ArgumentError
from schedir.ir.program import Program
from schedir.timeline.timeline import Timeline
from schedir.timeline.trace.trace import write_trace
from schedir.timeline.window import readable_count
from schedir.workflows.files import write_text
from schedir.workflows.filled_folder import filled_whole
from schedir.workflows.training.measured import measured_text
from schedir.workflows.training.train_log import EVALUATIONS, LOSSES, TrainLog
from schedir.workflows.training.train_report import read_report, train_report

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe
    from executor.recipe.training_outcome import TrainingOutcome
    from executor.recipe.training_plan import TrainingPlan
    from plots.losses import Course

NAMES = ("loss.png", "train.png", "train.trace.json", "report.json")
"""Files that a training leaves at its end."""
MEASURED = ("train.png", "train.trace.json")
"""Those among them that only a training that trains anything can make."""


def check_names(folder: Path) -> None:
    """Raise ArgumentError if a file cannot have its name, since a folder or a pipe has it: before the training, not behind it."""
    for path in (folder / name for name in (*NAMES, LOSSES, EVALUATIONS)):
        if path.is_dir() or path.is_fifo():
            kind = "folder" if path.is_dir() else "pipe"
            raise ArgumentError(f"{path} is a {kind}, but training writes a file of that name: give another --out")


def write_train_files(
    folder: Path, outcome: TrainingOutcome, *, log: TrainLog, recipe: Recipe, plan: TrainingPlan
) -> tuple[Path, ...]:
    """Fill the folder, all files or none, and return the places of those that are there, the pictures first.

    Where nothing was left to train on, nothing was measured either: what was measured before stays. Raises ArgumentError if it
    cannot.
    """
    from plots import save
    from plots.losses import losses

    before = read_report(folder)
    if not before:
        # nobody's file is written over because it cannot be read
        log.move_aside("report.json")
    report = train_report(outcome, log=log, recipe=recipe, plan=plan, before=before)
    with filled_whole(folder) as beside:
        if log.losses:  # else somebody has taken losses.csv away
            save(losses(course(log), title=f"{recipe.name}: {_title(outcome.program)}"), beside / "loss.png")
        if outcome.timeline is not None:
            save(picture(outcome.timeline, model=recipe.name), beside / "train.png")
            write_trace(beside / "train.trace.json", outcome.timeline)
        write_text(beside / "report.json", f"{json.dumps(report, indent=2, allow_nan=False)}\n")
    names = ("loss.png", LOSSES, EVALUATIONS, "train.png", "train.trace.json", "report.json")
    return tuple(folder / name for name in names if (folder / name).exists())


def course(log: TrainLog) -> Course:
    """Return what is to be drawn of a training, from its first mini-batch on that the files know."""
    from plots.losses import Course

    def column(values: Iterable[float | None]) -> npt.NDArray[np.float64]:
        return np.array([np.nan if value is None else value for value in values], np.float64)

    return Course(
        mini_batch=column(row.mini_batch for row in log.losses),
        loss=column(row.loss for row in log.losses),
        learning_rate=column(row.learning_rate for row in log.losses),
        gradient_norm=column(row.gradient_norm for row in log.losses),
        validated=column(row.mini_batches for row in log.evaluations),
        validation_loss=column(row.figures.get("loss") for row in log.evaluations),
        metrics={name: column(row.figures.get(name) for row in log.evaluations) for name in _metrics(log)},
    )


def _metrics(log: TrainLog) -> list[str]:
    """Return the names of the metrics in the order in which they came."""
    return list(dict.fromkeys(name for row in log.evaluations for name in row.figures if name != "loss"))


def _title(program: Program) -> str:
    return f"{program.name}, p = {program.num_devices}, m = {program.num_micro_batches}"


def picture(timeline: Timeline, *, model: str) -> Any:
    """Return the figure of some measured mini-batches; its figures are of all that were measured, which the title names."""
    from plots import gantt

    numbered = {"numbered_from": timeline.meta["first_mini_batch"]}
    return gantt(
        replace(timeline, meta={**timeline.meta, **numbered}),
        title=f"{model}: {_title(timeline.graph.program)}, measured: {measured_text(timeline)}",
        mini_batches=readable_count([timeline]),
    )
