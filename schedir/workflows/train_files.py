"""What a training leaves in its folder beside its checkpoints.

losses.csv, evaluations.csv    see `train_log`, which writes them while training goes on
loss.png            losses over mini-batches, those before a checkpoint too, with validation, learning rate and gradient norm
train.png           the newest mini-batches of full size as they were measured: under a flush the one of median length
train.trace.json    the same timeline whole, for Perfetto, `schedir plot` and `schedir compare`
report.json         schedir.train/1, of this training; what it went on from is in `before`
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from schedir.errors import ArgumentError
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.timeline import Timeline
from schedir.timeline.trace.trace import write_trace
from schedir.timeline.window import readable_count
from schedir.workflows.files import filled_whole, write_text
from schedir.workflows.measured import measured_range, measured_text
from schedir.workflows.train_log import EVALUATIONS, LOSSES, TrainLog

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe
    from executor.recipe.training_outcome import TrainingOutcome
    from executor.recipe.training_plan import TrainingPlan
    from plots.losses import Course

SCHEMA = "schedir.train/1"

NAMES = ("loss.png", "train.png", "train.trace.json", "report.json")
"""Files that a training leaves at its end."""
_BEFORE = ("first_mini_batch", "mini_batches", "left_out_mini_batches", "samples", "seconds", "checkpoint")
"""What a report keeps of those before it: losses and evaluations are in their files."""


def check_names(folder: Path) -> None:
    """Raise ArgumentError if a file cannot have its name, since a folder or a pipe has it: before the training, not behind it."""
    for path in (folder / name for name in (*NAMES, LOSSES, EVALUATIONS)):
        if path.is_dir() or path.is_fifo():
            kind = "folder" if path.is_dir() else "pipe"
            raise ArgumentError(f"{path} is a {kind}, but training writes a file of that name: give another --out")


def write_train_files(
    folder: Path, outcome: TrainingOutcome, *, log: TrainLog, recipe: Recipe, plan: TrainingPlan
) -> tuple[Path, ...]:
    """Fill the folder, all files or none, and return their places, the pictures first. Raises ArgumentError if it cannot."""
    from plots import save
    from plots.losses import losses

    assert outcome.timeline is not None
    report = train_report(outcome, recipe=recipe, plan=plan) | {"before": _before(folder, outcome)}
    with filled_whole(folder) as beside:
        save(losses(course(log), title=f"{recipe.name}: {_title(outcome.timeline)}"), beside / "loss.png")
        save(picture(outcome.timeline, model=recipe.name), beside / "train.png")
        write_trace(beside / "train.trace.json", outcome.timeline)
        write_text(beside / "report.json", f"{json.dumps(report, indent=2, allow_nan=False)}\n")
    written = [name for name in (LOSSES, EVALUATIONS) if (folder / name).exists()]
    return tuple(folder / name for name in ("loss.png", *written, "train.png", "train.trace.json", "report.json"))


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


def _before(folder: Path, outcome: TrainingOutcome) -> list[Any]:
    """Return what the report in the folder says of the trainings that this one goes on from, the first one first."""
    try:
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        # one that went further than the checkpoint, or that nobody went on from, is no part of this training
        if found["first_mini_batch"] + found["mini_batches"] > outcome.first_mini_batch:
            return []
        last = {name: found[name] for name in _BEFORE} | {"schedule": found["plan"]["schedule"]}
        return [one | {"checkpoint": _if_there(folder, one["checkpoint"])} for one in (*found.get("before", []), last)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # a report is for people: one that is missing or broken is no reason to lose a training's own
        return []


def _if_there(folder: Path, checkpoint: str | None) -> str | None:
    """Return the place of a checkpoint, as it was or beside the report; None if it is gone: `--keep-last` removes older ones."""
    if checkpoint is None:
        return None
    places = (Path(checkpoint), folder / "checkpoints" / Path(checkpoint).name)
    return next((str(place) for place in places if place.exists()), None)


def _title(timeline: Timeline) -> str:
    program = timeline.graph.program
    return f"{program.name}, p = {program.num_devices}, m = {program.num_micro_batches}"


def picture(timeline: Timeline, *, model: str) -> Any:
    """Return the figure of some measured mini-batches; its figures are of all that were measured, which the title names."""
    from plots import gantt

    numbered = {"numbered_from": timeline.meta["first_mini_batch"]}
    return gantt(
        replace(timeline, meta={**timeline.meta, **numbered}),
        title=f"{model}: {_title(timeline)}, measured: {measured_text(timeline)}",
        mini_batches=readable_count([timeline]),
    )


def train_report(outcome: TrainingOutcome, *, recipe: Recipe, plan: TrainingPlan) -> dict[str, Any]:
    """Return everything as plain JSON values; what is not finite is null."""
    assert outcome.timeline is not None
    return {
        "schema": SCHEMA,
        "schedir": version("schedir"),
        "model": recipe.name,
        "data": recipe.about,
        "plan": asdict(plan) | {"workers": outcome.timeline.meta["workers"]},
        "first_mini_batch": outcome.first_mini_batch,
        "mini_batches": len(outcome.losses),
        "left_out_mini_batches": outcome.left_out,
        "skipped_updates": list(outcome.skipped),
        "loss_scale": outcome.loss_scale,
        "samples": outcome.samples,
        "seconds": outcome.seconds,
        "samples_per_s": outcome.samples / outcome.seconds if outcome.seconds else None,
        "losses": [_finite(loss) for loss in outcome.losses],
        "evaluations": [
            {
                "mini_batches": one.mini_batch,
                "drained": one.drained,
                **{name: _finite(value) for name, value in one.figures.items()},
            }
            for one in outcome.evaluations
        ],
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "measured_mini_batches": list(measured_range(outcome.timeline)),
        "measured_text": measured_text(outcome.timeline),
        "measured": simulate_report(outcome.timeline, metrics(outcome.timeline)),
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
