"""report.json of a training (schedir.train/2): the whole of it, and what each command that came to its end had of it.

losses, evaluations    from the first mini-batch on that the rows beside it know, over all checkpoints
runs                   one for each command that came to its end, this one last
samples, seconds       of all runs; null where another one, which was stopped, trained what they do not
plan, measured         of the newest run that trained anything
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.timeline import Timeline
from schedir.workflows.training.measured import measured_range, measured_text
from schedir.workflows.training.train_log import EvaluationRow, LossRow, TrainLog

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe
    from executor.recipe.training_outcome import TrainingOutcome
    from executor.recipe.training_plan import TrainingPlan

NAME = "report.json"
SCHEMA = "schedir.train/2"

_COUNTS = ("first_mini_batch", "mini_batches", "left_out_mini_batches", "samples")
_MOST = 2**63
"""No count of a run, nor its seconds, come near; sums and quotients of what is below are finite."""
_MEASURED = ("measured_mini_batches", "measured_text", "measured")


def read_report(folder: Path) -> dict[str, Any]:
    """Return the report that is in a folder, its checkpoints as far as they are there; empty if none can be read."""
    try:
        found: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            return {}
        # what cannot be written again is not there to be read
        json.dumps(found, allow_nan=False)
        if not all(map(_is_run, found["runs"])) or not isinstance(found["checkpoint"], str | None):
            return {}
        runs = [run | {"checkpoint": _if_there(folder, run["checkpoint"])} for run in found["runs"]]
        return found | {"runs": runs, "checkpoint": _if_there(folder, found["checkpoint"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # a report is for people: one that is missing or broken is no reason to lose a training's own
        return {}


def _is_run(run: Mapping[str, Any]) -> bool:
    """Say whether a run has all that a later report takes from it; raise KeyError or TypeError where it has not."""
    counts, skipped = [run[name] for name in _COUNTS], run["skipped_updates"]
    numbers = [*counts, *skipped]
    return (
        all(type(number) is int and 0 <= number < _MOST for number in numbers)
        and type(run["seconds"]) in {int, float}
        and 0 <= run["seconds"] < _MOST
        and isinstance(run["checkpoint"], str | None)
    )


def _if_there(folder: Path, checkpoint: str | None) -> str | None:
    """Return the place of a checkpoint, as it was or beside the report; None if it is gone: `--keep-last` removes older ones."""
    if checkpoint is None:
        return None
    places = (Path(checkpoint), folder / "checkpoints" / Path(checkpoint).name)
    return next((str(place) for place in places if place.exists()), None)


def train_report(
    outcome: TrainingOutcome, *, log: TrainLog, recipe: Recipe, plan: TrainingPlan, before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything as plain JSON values; what is not finite or not known is null. `before`: what `read_report` found."""
    count = _reached(log.losses, outcome)
    reached = outcome.first_mini_batch if outcome.losses else count
    # one that went further than the checkpoint, or that nobody went on from, is no part of this training
    runs = [run for run in before.get("runs", ()) if run["first_mini_batch"] + run["mini_batches"] <= reached]
    runs += [_run(outcome)] if outcome.losses else []
    checkpoint = None if outcome.checkpoint is None else str(outcome.checkpoint)
    return {
        "schema": SCHEMA,
        "schedir": version("schedir"),
        "model": recipe.name,
        "data": recipe.about,
        "plan": asdict(plan) | {"workers": outcome.workers},
        "runs": runs,
        "left_out_mini_batches": sum(run["left_out_mini_batches"] for run in runs),
        "skipped_updates": [number for run in runs for number in run["skipped_updates"]],
        "loss_scale": outcome.loss_scale,
        "mini_batches": count,
        **_totals(runs, count),
        "first_mini_batch": log.losses[0].mini_batch if log.losses else 0,
        "losses": [_finite(row.loss) for row in log.losses],
        "evaluations": [_evaluation(row) for row in log.evaluations],
        "checkpoint": checkpoint if outcome.losses else before.get("checkpoint") or checkpoint,
    } | (_measured(outcome.timeline) if outcome.timeline is not None else _measured_before(before))


def _reached(losses: Sequence[LossRow], outcome: TrainingOutcome) -> int:
    """Return how many mini-batches the whole training has, a longer one's where nothing was left to train on."""
    rows = losses[-1].mini_batch + 1 if losses else 0
    return max(rows, outcome.first_mini_batch + len(outcome.losses))


def _run(outcome: TrainingOutcome) -> dict[str, Any]:
    return {
        "schedule": outcome.program.name,
        "first_mini_batch": outcome.first_mini_batch,
        "mini_batches": len(outcome.losses),
        "left_out_mini_batches": outcome.left_out,
        "skipped_updates": list(outcome.skipped),
        "samples": outcome.samples,
        "seconds": outcome.seconds,
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
    }


def _totals(runs: Sequence[Mapping[str, Any]], num_mini_batches: int) -> dict[str, Any]:
    """Return samples and seconds of all runs; null where one of them was killed, whose figures nobody has."""
    known = sum(run["mini_batches"] for run in runs) == num_mini_batches
    samples, seconds = (sum(run[name] for run in runs) if known else None for name in ("samples", "seconds"))
    return {"samples": samples, "seconds": seconds, "samples_per_s": _finite(samples / seconds) if samples and seconds else None}


def _evaluation(row: EvaluationRow) -> dict[str, Any]:
    figures = {name: _finite(value) for name, value in row.figures.items()}
    return {"mini_batches": row.mini_batches, "drained": row.drained, **figures}


def _measured(timeline: Timeline) -> dict[str, Any]:
    values = (list(measured_range(timeline)), measured_text(timeline), simulate_report(timeline, metrics(timeline)))
    return dict(zip(_MEASURED, values, strict=True))


def _measured_before(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the run before measured, and by which plan; nulls if there is none."""
    plan = {"plan": before["plan"]} if before.get("plan") else {}
    return {name: before.get(name) for name in _MEASURED} | plan


def _finite(value: float) -> float | None:
    """Return a number that JSON has, or None."""
    return value if isfinite(value) else None
