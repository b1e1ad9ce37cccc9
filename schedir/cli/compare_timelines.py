"""Timelines of one program against each other: a prediction and what was measured, or any two."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from schedir.cli.compare_options import CompareOutput
from schedir.cli.screen import amount, percent, print_table, seconds, signed
from schedir.compiler import load_timelines
from schedir.errors import ArgumentError
from schedir.timeline.compare import Comparison, compare
from schedir.timeline.compare_report import compare_report
from schedir.timeline.metrics import Metrics
from schedir.timeline.timeline import Source, Timeline


def compare_timelines(sources: Sequence[str], output: CompareOutput) -> None:
    """Compare the timelines of some files, and draw them above each other."""
    from schedir.cli.sources import is_timeline

    others = [source for source in sources if not is_timeline(source)]
    if others:
        raise ArgumentError(f"{others[0]} is no timeline file (.json, .json.gz), but {sources[0]} is: compare files or schedules")
    comparison = compare(*_sides([timeline for source in sources for timeline in load_timelines(Path(source))]))
    if output.json:
        print(json.dumps(compare_report(comparison), indent=1))
        return
    from plots import gantt, save

    print_comparison(comparison)
    print(f"wrote {save(gantt(*comparison.timelines, style='screen'), output.folder / 'compare.png')}")


def _sides(timelines: Sequence[Timeline]) -> tuple[Timeline, list[Timeline]]:
    """Return the prediction and its measurements; of two timelines of one kind the first stands for the prediction."""
    simulated = [timeline for timeline in timelines if timeline.source is Source.SIMULATED]
    measured = [timeline for timeline in timelines if timeline.source is Source.MEASURED]
    if len(simulated) == 1 and measured:
        return simulated[0], measured
    if len(timelines) == 2:
        return timelines[0], [timelines[1]]
    raise ArgumentError(
        f"{len(simulated)} simulated and {len(measured)} measured timelines: give one simulated and its measured ones, or any two"
    )


def print_comparison(comparison: Comparison) -> None:
    """Print what was predicted, what was measured, and where the difference comes from."""
    mine, theirs = comparison.predicted, comparison.measured
    print(f"{comparison.timelines[0].graph.program!r}, {comparison.measurements} measured")
    print_table(["", "predicted", "measured", "error"], _rows(comparison, mine, theirs))
    kinds = ", ".join(f"{kind.replace('_', ' ')} {signed(error)}" for kind, error in comparison.duration_error_by_kind.items())
    start = comparison.start_error_fraction
    floor = comparison.noise_floor_fraction
    print(f"\ndurations  {signed(comparison.duration_error_fraction)} of the makespan: {kinds}")
    print(f"structure  {signed(comparison.structural_error_fraction)} of the makespan: the graph on measured durations")
    print(
        f"starts     off by {percent(start.median)} of the step (median), {percent(start.p95)} (95 %), {percent(start.max)} (most)"
    )
    print(f"order      {percent(min(comparison.order_agreement))} of pairs as predicted, on the worst device")
    print(f"path       critical paths overlap by {percent(comparison.critical_path_overlap)}")
    print(f"noise      {'one measured step: not known' if floor is None else percent(floor)}")
    print(f"verdict    {comparison.verdict.value}" + (f": {comparison.contention}" if comparison.contention else ""))


def _rows(comparison: Comparison, mine: Metrics, theirs: Metrics) -> list[list[str]]:
    rows = [
        ["step", seconds(mine.step_s), seconds(theirs.step_s), signed(comparison.step_error_fraction)],
        ["makespan", seconds(mine.makespan_s), seconds(theirs.makespan_s), signed(mine.makespan_s / theirs.makespan_s - 1)],
        [
            "bubble",
            percent(mine.bubble_fraction),
            percent(theirs.bubble_fraction),
            f"{comparison.bubble_error_points:+.1f} points",
        ],
        ["recompute", percent(mine.recompute_share), percent(theirs.recompute_share), ""],
    ]
    if mine.peak_bytes is not None or theirs.peak_bytes is not None:
        rows.append(["peak", amount(mine.peak_bytes), amount(theirs.peak_bytes), ""])
    return rows
