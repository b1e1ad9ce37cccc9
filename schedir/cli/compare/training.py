"""Schedules predicted and really trained with a model: progress, the table, the files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedir.cli.compare.options import CompareOutput, CompareShape
from schedir.cli.compare.shapes import Sides, shapes_of
from schedir.cli.flags.options import ScheduleOptions, ShapeOptions
from schedir.cli.flags.recipes import find_recipe
from schedir.cli.flags.sources import options_for
from schedir.cli.screen.progress import Steps
from schedir.cli.screen.screen import amount, counted, print_table, seconds, seconds_range
from schedir.errors import RefusedError
from schedir.ir.program import Program
from schedir.timeline.comparison.noise_floor import noise_words
from schedir.timeline.metrics.shown import basis_words, bubble_name
from schedir.timeline.percent import percent, signed
from schedir.workflows.comparing.compare_training import compare_training, plain_torch
from schedir.workflows.comparing.plain_torch import NAME, PlainResult, PlainTorch
from schedir.workflows.comparing.training_files import notes, report, table_row, write_training_files
from schedir.workflows.comparing.training_results import (
    LEAST_ROUNDS,
    ComparisonProgress,
    Spread,
    TrainedSchedule,
    TrainingSetting,
    caution,
)
from schedir.workflows.files import write_text

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe

NUM_DEVICES = 2
"""Devices where --devices is not given: as many as a small machine has cores."""
NUM_MICRO_BATCHES = 4
"""Micro-batches where --micro-batches is not given."""
STEADY = 8
"""Mini-batches of a round beyond the 2p that start-up and drain take, where --mini-batches is not given."""

REMEDY = "a run of its own differs by more than schedules may; measure longer (--rounds, --time-limit) where nothing else runs"
"""What to do about what hinders a conclusion."""


def compare_with_training(
    sources: Sequence[str],
    model: str,
    *,
    output: CompareOutput,
    shape: CompareShape,
    options: ScheduleOptions,
    setting: TrainingSetting,
) -> None:
    """Profile, predict and train every schedule, print the table, write pictures, traces and report.json."""
    from executor.recipe.short_passes import left_out

    with Steps(lines=not output.json) as steps:
        steps.status(f"loading torch and {model}")
        recipe, programs = find_recipe(model), _programs(sources, shape, options)
        plain, without = _baseline(recipe, programs, setting)
        steps.say(recipe.headline)
        steps.say(_describe(programs, setting))
        if omitted := left_out(recipe):
            steps.say(omitted)  # before minutes of measuring what may not be what was meant
        steps.status("copying the model for every schedule, and counting its bytes")
        trained = compare_training(
            programs,
            recipe,
            setting,
            progress=lambda step: _show(step, steps),
            write_down=lambda notes: _write_down(output.folder, notes),
            plain=plain,
        )
        baseline = None if plain is None else plain.result()
        steps.status("drawing and writing what was measured")
        files = write_training_files(
            output.folder,
            trained,
            recipe=recipe,
            setting=setting,
            plain=baseline,
            progress=lambda name: steps.stage(f"writing {name}"),
        )
    if output.json:
        print(json.dumps(report(trained, recipe, setting, plain=baseline), indent=1, allow_nan=False))
        return
    print_trained(trained, setting, baseline)
    if without:
        print(without)
    for file in files:
        print(f"wrote {file}")


def _show(step: ComparisonProgress, steps: Steps) -> None:
    if step.note:
        steps.say(step.note)
    steps.show(step.done, step.total, step.text)


def _baseline(recipe: Recipe, programs: Sequence[Program], setting: TrainingSetting) -> tuple[PlainTorch | None, str]:
    """Return what trains without a pipeline, or the line that says why nothing does."""
    try:
        return plain_torch(recipe, setting, max(program.num_mini_batches for program in programs)), ""
    except RefusedError as error:
        return None, f"no row {NAME}: {error}"


def _programs(sources: Sequence[str], shape: CompareShape, options: ScheduleOptions) -> list[Program]:
    devices = shape.devices or NUM_DEVICES
    defaults = ShapeOptions(devices=devices, micro_batches=NUM_MICRO_BATCHES, mini_batches=2 * devices + STEADY)
    return Sides(sources, shapes_of(len(sources), shape), options_for(sources, options), defaults=defaults).build()


def _describe(programs: Sequence[Program], setting: TrainingSetting) -> str:
    program = programs[0]
    what = f"{counted(program.num_mini_batches, 'mini-batch')} of {counted(program.num_micro_batches, 'micro-batch')}"
    return (
        f"{counted(program.num_devices, 'device')} ({setting.workers}), rounds of {what}: one to warm up, "
        f"{setting.rounds} measured, each predicted before"
    )


def _write_down(folder: Path, notes: list[dict[str, Any]]) -> None:
    """Keep the predictions that are made so far; every one is on disk before its measurement begins."""
    content = {"schema": "schedir.predictions/1", "predictions": notes}
    write_text(folder / "predictions.json", json.dumps(content, indent=1, allow_nan=False) + "\n")


def print_trained(trained: Sequence[TrainedSchedule], setting: TrainingSetting, plain: PlainResult | None = None) -> None:
    """Print one row per schedule, and what it is one of; `plain` is what all of them are held against, in the last row."""
    if warned := caution([each.rounds for each in trained]):
        print(f"{warned}: {REMEDY}")
    rows = [table_row(each) for each in trained]
    figures, rounds = [each.comparison.measured for each in trained], len(trained[0].rounds)
    bubble = bubble_name(figures)
    columns = {
        "schedule": [row["schedule"] for row in rows],
        "step predicted": [seconds(row["step_predicted_s"]) for row in rows],
        "measured": [seconds(row["step_measured_s"]) for row in rows],
        "error": [_errors(each.step_errors) if rounds > 1 else signed(each.step_error_fraction) for each in trained],
        "noise": [percent(row["noise_floor_fraction"]) for row in rows],
        f"{bubble} predicted": [percent(row["bubble_fraction_predicted"]) for row in rows],
        f"{bubble} measured": [percent(row["bubble_fraction"]) for row in rows],
        "recompute": [percent(row["recompute_share"]) for row in rows],
        "peak": [amount(row["peak_bytes_predicted"]) for row in rows],
        "samples/s": [f"{row['samples_per_s']:.4g}" for row in rows],
        "loss first": [f"{row['loss_first']:.4g}" for row in rows],
        "last": [f"{row['loss_last']:.4g}" for row in rows],
    }
    if plain is not None:
        columns["to plain"] = [f"{plain.step_s / row['step_measured_s']:.2f} x" for row in rows]
        known = {
            "schedule": NAME,
            "measured": seconds(plain.step_s),
            "samples/s": f"{plain.samples_per_s:.4g}",
            "loss first": f"{plain.losses[0]:.4g}",
            "last": f"{plain.losses[-1]:.4g}",
            "to plain": "1.00 x",
        }
        columns = {name: [*column, known.get(name, "-")] for name, column in columns.items()}
    print_table(list(columns), zip(*columns.values(), strict=True))
    if plain is not None:
        print(f"{NAME}: the model in one piece, whole mini-batches, one thread, in the same rounds; to plain: samples/s over its")
        print_first_loss([row["loss_first"] for row in rows], plain.losses[0])
    print(f"step: seconds of a mini-batch; step and bubble: {basis_words(figures)}")
    print(f"error: predicted / measured - 1; noise: {noise_words(rounds)}")
    if rounds > 1:
        print(f"all are medians of {rounds} rounds; error: of the rounds' own errors, in brackets least to most")
    print("recompute: share of the busy time, measured; peak: bytes of the fullest device, predicted; samples/s: measured")
    print_spread(trained)
    for note in notes(trained, setting):
        print(note)


def print_first_loss(pipelines: Sequence[float], plain: float) -> None:
    """Say why the baseline begins with another loss, where it does: weights and samples are the same, random numbers cannot be."""
    if not all(isclose(loss, plain, rel_tol=1e-4) for loss in pipelines):
        print(
            f"loss first: {NAME} has the same weights and samples, but draws masks of dropout, and takes batch norm, "
            "for the whole mini-batch, a schedule for every micro-batch"
        )


def print_spread(trained: Sequence[TrainedSchedule]) -> None:
    """Print how sure the prediction was, what its error is made of, and how far the other rounds are from the one that is shown."""
    rounds = len(trained[0].rounds)
    few = "" if rounds >= LEAST_ROUNDS else ": too few"
    predicted = [each.judged.predicted for each in trained]
    steps, bubbles = ([getattr(one, name) for one in predicted] for name in ("step_interval", "bubble_interval"))
    columns = {
        "schedule": [each.name for each in trained],
        "step, 90 %": [seconds_range(step.low, step.high) for step in steps],
        f"{bubble_name([each.comparison.measured for each in trained])}, 90 %": [
            f"{percent(bubble.low).removesuffix(' %')} to {percent(bubble.high)}" for bubble in bubbles
        ],
        "inside": [f"{each.steps_inside} of {rounds}{few}" for each in trained],
        "durations": [signed(each.comparison.duration_error_fraction) for each in trained],
        "structure": [signed(each.comparison.structural_error_fraction) for each in trained],
    }
    if rounds > 1:
        columns |= {
            "all predicted": [seconds_range(each.predicted_steps.least, each.predicted_steps.most) for each in trained],
            "all measured": [seconds_range(each.measured_steps.least, each.measured_steps.most) for each in trained],
            "round of the rest": [f"{each.judged.number} of {rounds}" for each in trained],
        }
    print()
    print_table(list(columns), zip(*columns.values(), strict=True))
    print("90 %: where nine of ten runs are expected, by the profile's scatter and the machine's drift so far")
    print("inside: measured steps inside the interval of their own prediction")
    print("durations, structure: what the error of the whole run is made of: costs, and how tasks follow each other")
    if rounds > 1:
        print(f"all: least to most of {rounds} rounds; the rest, pictures and traces: of the round nearest the median error")


def _errors(over_rounds: Spread) -> str:
    return f"{signed(over_rounds.median)} ({signed(over_rounds.least)} to {signed(over_rounds.most)})"
