"""What a training leaves in its folder beside its checkpoints.

train.png           the newest mini-batches as they were measured
train.trace.json    the same timeline whole, for Perfetto, `schedir plot` and `schedir compare`
losses.csv          mini_batch, loss
report.json         schedir.train/1
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.metrics.steady import mini_batch_end
from schedir.timeline.timeline import Timeline
from schedir.timeline.trace.trace import write_trace
from schedir.workflows.files import filled_whole, write_text

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe
    from executor.recipe.training_outcome import TrainingOutcome
    from executor.recipe.training_plan import TrainingPlan

SCHEMA = "schedir.train/1"

SHOWN = 3
"""Mini-batches in the picture: enough to see the steady state, few enough to read single tasks."""


def write_train_files(folder: Path, outcome: TrainingOutcome, *, recipe: Recipe, plan: TrainingPlan) -> tuple[Path, ...]:
    """Fill the folder, all files or none, and return their places, the picture first. Raises ArgumentError if it cannot."""
    from plots import gantt, save

    assert outcome.timeline is not None
    with filled_whole(folder) as beside:
        shown = closing(outcome.timeline, SHOWN)
        save(gantt(shown, title=_title(outcome.timeline)), beside / "train.png")
        write_trace(beside / "train.trace.json", outcome.timeline)
        write_text(beside / "losses.csv", _losses(outcome))
        text = json.dumps(train_report(outcome, recipe=recipe, plan=plan), indent=2, allow_nan=False)
        write_text(beside / "report.json", f"{text}\n")
    return tuple(folder / name for name in ("train.png", "train.trace.json", "losses.csv", "report.json"))


def _title(timeline: Timeline) -> str:
    program = timeline.graph.program
    return f"{program.name}, p = {program.num_devices}, m = {program.num_micro_batches}: measured while training"


def closing(timeline: Timeline, num_mini_batches: int) -> Timeline:
    """Return what happens behind the end of the mini-batch that many before the last; the rest counts as not recorded."""
    before = timeline.graph.program.num_mini_batches - num_mini_batches - 1
    limit = mini_batch_end(timeline, before) if before >= 0 else None
    if limit is None:
        return timeline
    inside = timeline.start >= limit
    start, end = (np.where(inside, times, np.nan) for times in (timeline.start, timeline.end))
    return replace(timeline, start=start, end=end, memory=None)


def _losses(outcome: TrainingOutcome) -> str:
    rows = (f"{number},{loss!r}" for number, loss in enumerate(outcome.losses, outcome.first_mini_batch))
    return "\n".join(["mini_batch,loss", *rows, ""])


def train_report(outcome: TrainingOutcome, *, recipe: Recipe, plan: TrainingPlan) -> Mapping[str, Any]:
    """Return everything as plain JSON values; what is not finite is null."""
    assert outcome.timeline is not None
    return {
        "schema": SCHEMA,
        "schedir": version("schedir"),
        "model": recipe.name,
        "data": recipe.about,
        "plan": asdict(plan),
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
            {"mini_batch": one.mini_batch, **{name: _finite(value) for name, value in one.figures.items()}}
            for one in outcome.evaluations
        ],
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "measured": simulate_report(outcome.timeline, metrics(outcome.timeline)),
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
