"""Schedules side by side: a table, bars on one time axis, a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from schedir.cli.compare.options import PICTURE, CompareOutput, CompareShape, save_picture
from schedir.cli.compare.shapes import Sides, shapes_of
from schedir.cli.flags.costs import without_costs
from schedir.cli.flags.equal_work import by_costs, common_setting, noted
from schedir.cli.flags.orders import check_order
from schedir.cli.flags.parts import Part, part_line, readable_part
from schedir.cli.flags.prediction import Common, check_fit
from schedir.cli.flags.prediction_options import VerdictOptions
from schedir.cli.flags.sources import options_for
from schedir.cli.screen.bars import bar_rows, legend, window_of
from schedir.cli.screen.progress import Underway
from schedir.cli.screen.screen import amount, counted, print_table, seconds
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.metrics.shown import basis_words, bubble_name, shown_bubble
from schedir.timeline.percent import percent
from schedir.timeline.timeline import Timeline
from schedir.timeline.window import drawn_part, part_text, window
from schedir.workflows.comparing.compare_schedules import ComparedSchedule, compare_schedules
from schedir.workflows.comparing.equal_work import equal_work

MOST_BARS = 40
"""Devices over all schedules whose bars are printed; of more there is only the picture."""


def compare_side_by_side(
    sources: Sequence[str], common: Common, *, output: CompareOutput, shape: CompareShape, verdict: VerdictOptions
) -> None:
    """Predict all schedules on the same work, print the table and the bars, write the picture."""
    check_order(common, sources)
    with Underway(f"predicts {', '.join(sources)}"):
        sides, shared_out = _predicted(sources, common, shape, samples=verdict.samples)
    for side in sides if verdict.require_fit else ():
        check_fit(side.figures, f"{side.timeline.graph.program.name}: ")
    if output.json:
        reports = [simulate_report(side.timeline, side.figures) for side in sides]
        found = {"schema": "schedir.side-by-side/1", "stages": shared_out, "schedules": reports}
        print(json.dumps(found, indent=1, allow_nan=False))
        return
    print_sides(sides, shared_out)
    timelines = [side.timeline for side in sides]
    drawn = readable_part(timelines, from_start=True)
    print_bars(timelines, drawn)
    with Underway(f"draws {output.folder / PICTURE}", logged=True):
        place = _draw(timelines, output.folder, drawn)
    line = part_line(timelines, drawn)
    print(f"wrote {place}" + (f": {line}, to show single tasks; the figures are of all" if line else ""))


def _predicted(
    sources: Sequence[str], common: Common, shape: CompareShape, *, samples: int | None
) -> tuple[list[ComparedSchedule], tuple[str, ...]]:
    """Predict all schedules on the same work; return also the lines that say how it is shared out over stages."""
    shapes, own = shapes_of(len(sources), shape), options_for(sources, common.options)
    plain = Sides(sources, shapes, [without_costs(each) for each in own])
    fixed = plain.build()
    setting = common_setting(common, fixed, samples)
    work = equal_work(setting.costs, fixed)
    chosen = by_costs(sources, own, common.costs, costs=[work.of(each) for each in fixed])
    programs = plain if common.order.fixed_order else Sides(sources, shapes, chosen)
    alike = programs.build_alike()
    predicted = compare_schedules(alike, setting)
    sides, _ = noted(predicted, plain.build_alike(), setting, common.costs, limit=common.options.activation_limit)
    return sides, work.lines(alike)


def print_sides(sides: Sequence[ComparedSchedule], shared_out: Sequence[str]) -> None:
    """Print one row per schedule: what a mini-batch takes, and what it costs in idleness, memory and staleness.

    `shared_out` says which schedules' stages are not those that the costs were given for.
    """
    programs = [side.timeline.graph.program for side in sides]
    figures = [side.figures for side in sides]
    best = min(side.seconds_per_mini_batch for side in sides)
    print(
        f"{counted(len(sides), 'schedule')} on {_range([program.num_devices for program in programs], 'device')}, "
        f"one mini-batch's work held equal, {_range([program.num_mini_batches for program in programs], 'mini-batch')} each"
    )
    columns = {
        "schedule": [side.timeline.graph.program.name for side in sides],
        "m": [str(side.timeline.graph.program.num_micro_batches) for side in sides],
        "per mini-batch": [seconds(side.seconds_per_mini_batch) for side in sides],
        "slower": [f"{side.seconds_per_mini_batch / best:.2f} x" if best else "-" for side in sides],
        "samples/s": [_rate(side) for side in sides],
        bubble_name(figures): [percent(shown_bubble(each)) for each in figures],
        "recompute": [percent(side.figures.recompute_share) for side in sides],
        "live": [str(max(row.peak_live_activations for row in side.figures.devices)) for side in sides],
        "peak": [amount(side.figures.peak_bytes) for side in sides],
        "fits": [_fits(side) for side in sides],
        "versions": [str(max(stage.weight_versions for stage in side.figures.stages)) for side in sides],
        "staleness": [str(max(stage.staleness for stage in side.figures.stages)) for side in sides],
    }
    columns |= _percentiles(sides)
    kept = {name: column for name, column in columns.items() if set(column) != {"-"}}
    print_table(list(kept), zip(*kept.values(), strict=True))
    print(f"per mini-batch and bubble: {basis_words(figures)}; bubble = 1 - busy / (devices x time)")
    drawn = sides[0].figures.percentiles
    if drawn is not None:
        print(f"p50, p95, p99: seconds of the whole run per mini-batch, over {counted(drawn.samples, 'draw')} of all durations")
    if shared_out:
        print("live: pairs of a micro-batch and a stage, of stages as large as the schedule's own are")
    for line in shared_out:
        print(line)
    for note in dict.fromkeys(note for side in sides for note in side.timeline.meta.get("notes", ())):
        print(f"note: {note}")


def _percentiles(sides: Sequence[ComparedSchedule]) -> dict[str, list[str]]:
    """Return a column for each percentile; none where nothing was drawn."""
    drawn = [side.figures.percentiles for side in sides]
    known = [each.seconds_per_mini_batch for each in drawn if each is not None]
    return {name: [seconds(each[name]) for each in known] for name in ("p50", "p95", "p99") if known}


def _range(counts: Sequence[int], word: str) -> str:
    least, most = min(counts), max(counts)
    return counted(most, word) if least == most else f"{least} to {counted(most, word)}"


def _rate(side: ComparedSchedule) -> str:
    return "-" if side.figures.samples_per_s is None else f"{side.figures.samples_per_s:.4g}"


def _fits(side: ComparedSchedule) -> str:
    return "-" if side.figures.fits is None else "yes" if side.figures.fits else "no"


def print_bars(timelines: Sequence[Timeline], drawn: Part | None) -> None:
    """Print the schedules' bars on one time axis, of those mini-batches that are drawn."""
    if sum(timeline.graph.program.num_devices for timeline in timelines) > MOST_BARS:
        return
    most = max(timeline.graph.program.num_mini_batches for timeline in timelines)
    parts = [_part_of(timeline, drawn, most) for timeline in timelines]
    margin = len("device 00 ||")
    axis = window_of([shown for _, shown in parts], margin)
    for what, shown in parts:
        print(f"\n{shown.graph.program.name}: {what} in {seconds(shown.makespan_s)}")
        for device, row in enumerate(bar_rows(shown, axis)):
            print(f"device {device:<2} |{row}|")
    print("\n".join(["", *axis.note(margin), legend([shown for _, shown in parts])]))


def _part_of(timeline: Timeline, drawn: Part | None, most: int) -> tuple[str, Timeline]:
    """Return what is drawn of a timeline, in words and alone; `most` is how many mini-batches the longest one has."""
    count = timeline.graph.program.num_mini_batches
    part = drawn_part(timeline, drawn, most=most)
    return (counted(count, "mini-batch"), timeline) if part is None else (part_text(*part, count), window(timeline, *part))


def _draw(timelines: Sequence[Timeline], folder: Path, drawn: Part | None) -> str:
    from plots import gantt

    return save_picture(gantt(*timelines, style="screen", mini_batches=drawn), folder)
