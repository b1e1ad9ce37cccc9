"""What a comparison of predicted and measured training leaves in a folder: pictures, traces and a report.

gpipe.png …          prediction above measurement on one time axis, some mini-batches of the steady state
comparison.png       all schedules side by side
gpipe.trace.json …   the same two timelines whole, for Perfetto and for `schedir plot`
report.json          table, comparisons, every round
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedir.timeline.comparison.report import compare_report
from schedir.timeline.percent import percent
from schedir.timeline.trace.trace import write_trace
from schedir.timeline.window import readable_count
from schedir.workflows.comparing.plain_torch import PlainResult
from schedir.workflows.comparing.split_backward import split_backward_lines
from schedir.workflows.comparing.training_results import BUSY, Round, TrainedSchedule, TrainingSetting
from schedir.workflows.files import write_text
from schedir.workflows.filled_folder import filled_whole

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe

SCHEMA = "schedir.training/1"


def table_row(trained: TrainedSchedule) -> dict[str, Any]:
    """Return one schedule's line of the table as plain JSON values; seconds, bytes, fractions; medians over the rounds."""
    bubble_predicted, bubble = trained.bubbles
    return {
        "schedule": trained.name,
        "step_predicted_s": trained.predicted_step_s,
        "step_measured_s": trained.measured_step_s,
        "step_error_fraction": trained.step_error_fraction,
        "step_error_least": trained.step_errors.least,
        "step_error_most": trained.step_errors.most,
        "noise_floor_fraction": trained.noise_floor_fraction,
        "bubble_fraction_predicted": bubble_predicted,
        "bubble_fraction": bubble,
        "recompute_share": trained.recompute_share,
        "peak_bytes_predicted": trained.comparison.predicted.peak_bytes,
        "samples_per_s": trained.samples_per_s,
        "loss_first": trained.losses[0],
        "loss_last": trained.losses[-1],
    }


def notes(trained: Sequence[TrainedSchedule], setting: TrainingSetting) -> tuple[str, ...]:
    """Return one line for what of the recipe was left out, for a limit that was met, and for what explains errors."""
    omitted = trained[0].costs.source.get("left_out")
    lines = [] if omitted is None else [str(omitted)]
    measured = len(trained[0].rounds)
    if measured < setting.rounds:
        lines.append(f"{measured} of {setting.rounds} rounds measured: the time limit of {setting.time_limit_s:g} s")
    lines += [f"{each.name}: {_sharing(each)}" for each in trained if each.costs.source.get("own_core")]
    taken = max(each.costs.source["preempted_fraction"] for each in trained)
    if taken > BUSY:
        lines.append(f"the machine was busy: the system took the core away in {percent(taken)} of the profiled tasks")
    lines += split_backward_lines({each.name: each.costs for each in trained})
    lines += [f"{each.name}: {each.comparison.contention}" for each in trained if each.comparison.contention is not None]
    return tuple(lines)


def _sharing(trained: TrainedSchedule) -> str:
    cores = trained.judged.predicted.timeline.meta["cores"]
    return (
        f"{trained.graph.program.num_devices} devices share the {cores} cores of this machine: "
        "durations are profiled as CPU time, and the prediction shares the cores"
    )


def write_training_files(
    folder: Path,
    trained: Sequence[TrainedSchedule],
    *,
    recipe: Recipe,
    setting: TrainingSetting,
    plain: PlainResult | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Path, ...]:
    """Fill the folder, all files or none, and return their places, pictures first; `progress` hears of each before it is made.

    Raises ArgumentError if it cannot.
    """
    from plots import save

    with filled_whole(folder) as beside:
        names = [f"{each.name}.png" for each in trained]
        for each, name in zip(trained, names, strict=True):
            progress(name)
            save(picture(each), beside / name)
        progress("comparison.png")
        save(side_by_side(trained), beside / "comparison.png")
        traces = [f"{each.name}.trace.json" for each in trained]
        for each, name in zip(trained, traces, strict=True):
            progress(name)
            write_trace(beside / name, *each.comparison.timelines)
        text = json.dumps(report(trained, recipe, setting, plain=plain), indent=2, allow_nan=False) + "\n"
        write_text(beside / "report.json", text)
    return tuple(folder / name for name in (*names, "comparison.png", *traces, "report.json"))


def picture(trained: TrainedSchedule) -> Any:
    """Return the figure of some mini-batches of the steady state, prediction above measurement."""
    from plots import gantt

    predicted, measured = trained.comparison.timelines
    return gantt(predicted, measured, mini_batches=readable_count([measured]))


def side_by_side(trained: Sequence[TrainedSchedule]) -> Any:
    """Return the figure of all schedules, with every round of each: it shows their medians and how far they are apart."""
    from plots import comparison

    return comparison(*(line for each in trained for one in each.rounds for line in (one.predicted.timeline, one.measured)))


def plain_row(plain: PlainResult) -> dict[str, Any]:
    """Return the baseline as plain JSON values."""
    return {
        "step_measured_s": plain.step_s,
        "samples_per_s": plain.samples_per_s,
        "steps_s": list(plain.steps_s),
        "losses": list(plain.losses),
    }


def report(
    trained: Sequence[TrainedSchedule], recipe: Recipe, setting: TrainingSetting, *, plain: PlainResult | None = None
) -> Mapping[str, Any]:
    """Return everything as plain JSON values."""
    return {
        "schema": SCHEMA,
        "schedir": version("schedir"),
        "model": recipe.name,
        "data": recipe.about,
        "setting": asdict(setting),
        "table": [table_row(each) for each in trained],
        "rounds_asked": setting.rounds,
        "rounds_measured": len(trained[0].rounds),
        "notes": list(notes(trained, setting)),
        "plain_torch": None if plain is None else plain_row(plain),
        "schedules": [
            {
                "schedule": each.name,
                "mini_batch_size": each.mini_batch_size,
                "judged_round": each.judged.number,
                "steps_inside_interval": each.steps_inside,
                "rounds": [_round(one) for one in each.rounds],
                "spread": {
                    "predicted_step_s": asdict(each.predicted_steps),
                    "measured_step_s": asdict(each.measured_steps),
                    "step_error_fraction": asdict(each.step_errors),
                },
                "losses": list(each.losses),
                "profile": dict(each.costs.source),
                "comparison": compare_report(each.comparison),
            }
            for each in trained
        ],
    }


def _round(one: Round) -> dict[str, Any]:
    return {
        "round": one.number,
        "predicted_step_s": one.predicted_step_s,
        "predicted_step_interval_s": asdict(one.predicted.step_interval),
        "predicted_step_draws_s": asdict(one.predicted.step_draws),
        "drift": asdict(one.predicted.drift),
        "predicted_bubble_fraction": one.predicted.bubble_fraction,
        "predicted_bubble_interval": asdict(one.predicted.bubble_interval),
        "measured_step_s": one.measured_step_s,
        "step_error_fraction": one.step_error_fraction,
        "inside_interval": one.inside,
    }
