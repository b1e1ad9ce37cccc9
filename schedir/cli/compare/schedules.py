"""Schedules side by side: a table, bars on one time axis, a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from schedir.cli.compare.options import CompareOutput, CompareShape, save_picture
from schedir.cli.compare.shapes import Sides, shapes_of
from schedir.cli.flags.costs import chooses_order, following, read_cluster, read_costs, without_costs
from schedir.cli.flags.options import ChoosingOptions, CostOptions
from schedir.cli.flags.orders import OrderOptions, order_line, with_notes
from schedir.cli.flags.prediction import Common, check_draws, check_fit, micro_batch_size, resized
from schedir.cli.flags.sources import options_for
from schedir.cli.screen.bars import bar_rows, legend, window_of
from schedir.cli.screen.screen import amount, counted, print_table, seconds
from schedir.costs.model import CostModel
from schedir.ir.program import Program
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.percent import percent
from schedir.workflows.compare_schedules import FIGURE_MINI_BATCHES, CommonSetting, ComparedSchedule, compare_schedules
from schedir.workflows.equal_work import equal_work

MOST_BARS = 40
"""Devices over all schedules whose bars are printed; of more there is only the picture."""


def compare_side_by_side(
    sources: Sequence[str],
    common: Common,
    *,
    output: CompareOutput,
    shape: CompareShape,
    options: ChoosingOptions,
    order: OrderOptions,
) -> None:
    """Predict all schedules on the same work, print the table and the bars, write the picture."""
    order.check(options, sources)
    shapes, own = shapes_of(len(sources), shape), options_for(sources, options)
    plain = Sides(sources, shapes, [without_costs(each) for each in own])
    fixed = plain.build()
    setting = _setting(common, max(fixed, key=lambda program: program.num_micro_batches))
    work = equal_work(setting.costs, fixed)
    chosen = _by_costs(sources, own, common.costs, costs=[work.of(each) for each in fixed])
    programs = plain if order.fixed_order else Sides(sources, shapes, chosen)
    alike = programs.build_alike()
    sides = _noted(compare_schedules(alike, setting), plain.build_alike(), setting, common.costs, limit=options.activation_limit)
    for side in sides if common.verdict.require_fit else ():
        check_fit(side.figures, f"{side.timeline.graph.program.name}: ")
    shared_out = work.lines(alike)
    if output.json:
        reports = [simulate_report(side.timeline, side.figures) for side in sides]
        found = {"schema": "schedir.side-by-side/1", "stages": shared_out, "schedules": reports}
        print(json.dumps(found, indent=1, allow_nan=False))
        return
    print_sides(sides, shared_out)
    drawn = compare_schedules(programs.build(min(FIGURE_MINI_BATCHES, alike[0].num_mini_batches)), replace(setting, samples=None))
    print_bars(drawn)
    title = _drawn_text(drawn, sides)
    print(f"wrote {_draw(drawn, output.folder, title)}" + (f": {title}" if title else ""))


def _noted(
    sides: Sequence[ComparedSchedule], fixed: Sequence[Program], setting: CommonSetting, given: CostOptions, *, limit: int | None
) -> list[ComparedSchedule]:
    """Return the sides, those whose order is not the fixed one with a line that says so."""
    others = [one if side.timeline.graph.program == one else None for side, one in zip(sides, fixed, strict=True)]
    if None not in others:
        return list(sides)
    return [
        side if other else _with_line(side, takes, given, limit=limit)
        for side, other, takes in zip(sides, others, compare_schedules(fixed, replace(setting, samples=None)), strict=True)
    ]


def _with_line(side: ComparedSchedule, fixed: ComparedSchedule, given: CostOptions, *, limit: int | None) -> ComparedSchedule:
    takes = f"{seconds(fixed.seconds_per_mini_batch)} per mini-batch"
    line = order_line(side.timeline.graph.program.name, takes, given, limit=limit)
    return replace(side, timeline=with_notes(side.timeline, [line]))


def _by_costs(
    sources: Sequence[str], options: Sequence[ChoosingOptions], given: CostOptions, *, costs: Sequence[CostModel]
) -> list[ChoosingOptions]:
    """Return every schedule's options, with its own costs where it is one that follows costs and there are any to follow."""
    return [
        following(source, own, model) if chooses_order(own, given) else own
        for source, own, model in zip(sources, options, costs, strict=True)
    ]


def _setting(common: Common, finest: Program) -> CommonSetting:
    """Return the setting; sizes are those of the schedule that cuts its mini-batch into most micro-batches."""
    size = micro_batch_size(common.sizes, finest)
    if common.verdict.samples is not None:
        check_draws(common.engine)
    return CommonSetting(
        costs=resized(read_costs(common.costs), size),
        cluster=read_cluster(common.costs),
        **common.lowering.given(),
        engine=common.engine.engine or "auto",
        seed=common.engine.seed,
        sends=common.engine.sends or "buffered",
        jitter=common.engine.jitter or 0.0,
        samples=common.verdict.samples,
        memory_limit=common.engine.memory_limit,
        cores=common.engine.cores,
        mini_batch_size=None if size is None else size * finest.num_micro_batches,
    )


def print_sides(sides: Sequence[ComparedSchedule], shared_out: Sequence[str]) -> None:
    """Print one row per schedule: what a mini-batch takes, and what it costs in idleness, memory and staleness.

    `shared_out` says which schedules' stages are not those that the costs were given for.
    """
    programs = [side.timeline.graph.program for side in sides]
    steady = all(side.figures.steady is not None for side in sides)
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
        "steady bubble" if steady else "bubble": [percent(side.bubble_fraction) for side in sides],
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
    where = "" if steady else " where there is one"
    print(f"per mini-batch and bubble: in steady state{where}; bubble = 1 - busy / (devices x time)")
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


def print_bars(sides: Sequence[ComparedSchedule]) -> None:
    """Print the schedules' bars on one time axis."""
    if sum(side.timeline.graph.program.num_devices for side in sides) > MOST_BARS:
        return
    timelines, margin = [side.timeline for side in sides], len("device 00 ||")
    window = window_of(timelines, margin)
    for timeline in timelines:
        program = timeline.graph.program
        print(f"\n{program.name}: {counted(program.num_mini_batches, 'mini-batch')} in {seconds(timeline.makespan_s)}")
        for device, row in enumerate(bar_rows(timeline, window)):
            print(f"device {device:<2} |{row}|")
    print("\n".join(["", *window.note(margin), legend(timelines)]))


def _drawn_text(drawn: Sequence[ComparedSchedule], sides: Sequence[ComparedSchedule]) -> str | None:
    """Say why the picture shows fewer mini-batches than the table is about; None where it does not."""
    shown, whole = (each[0].timeline.graph.program.num_mini_batches for each in (drawn, sides))
    if shown == whole:
        return None
    return f"{counted(shown, 'mini-batch')} drawn, to show single tasks; the table's {whole} give the steady state"


def _draw(sides: Sequence[ComparedSchedule], folder: Path, title: str | None) -> str:
    from plots import gantt

    return save_picture(gantt(*(side.timeline for side in sides), style="screen", title=title), folder)
