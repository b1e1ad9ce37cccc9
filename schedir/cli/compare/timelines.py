"""Timelines against each other: of one program task by task, a prediction and what was measured or any two; else side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schedir.cli.compare.details import print_ratios, print_sides
from schedir.cli.compare.options import CompareOutput, save_picture
from schedir.cli.screen.screen import amount, print_table, seconds, shape_text
from schedir.compiler import load_timelines
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from schedir.timeline.comparison.compare import Comparison, Verdict, compare, relative_error
from schedir.timeline.comparison.noise_floor import noise_words
from schedir.timeline.comparison.report import compare_report
from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.percent import percent, points, signed
from schedir.timeline.timeline import Source, Timeline

WORDS = {Source.SIMULATED: "predicted", Source.MEASURED: "measured"}

MEANINGS = {
    Verdict.WITHIN_NOISE: "within noise: the measurement differs from itself by as much",
    Verdict.DURATIONS: "durations: most of the error is in how long tasks take",
    Verdict.STRUCTURE: "structure: most of the error is in how tasks follow each other",
}
"""What a verdict says; with the name that JSON has in front."""


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """A timeline and the file that it came from."""

    file: str
    timeline: Timeline

    @property
    def word(self) -> str:
        """What it is."""
        return WORDS[self.timeline.source]

    @property
    def name(self) -> str:
        """The file's name without what every trace is called."""
        return Path(self.file).name.removesuffix(".gz").removesuffix(".json").removesuffix(".trace")


def compare_timelines(sources: Sequence[str], output: CompareOutput) -> None:
    """Compare the timelines of some files, and draw them."""
    from schedir.cli.flags.sources import is_timeline

    others = [source for source in sources if not is_timeline(source)]
    if others:
        file = next(filter(is_timeline, sources))
        raise ArgumentError(f"{others[0]} is no timeline file (.json, .json.gz), but {file} is: compare files or schedules")
    named = [Named(source, timeline) for source in sources for timeline in load_timelines(Path(source))]
    if any(not _same(named[0].timeline.graph, one.timeline.graph) for one in named):
        _side_by_side(named, output)
    else:
        _task_by_task(named, output)


def _same(one: TaskGraph, other: TaskGraph) -> bool:
    return one.program == other.program and one.options == other.options


def _task_by_task(named: Sequence[Named], output: CompareOutput) -> None:
    first, others = _sides(named)
    comparison = compare(first.timeline, [one.timeline for one in others])
    if output.json:
        print(json.dumps(compare_report(comparison), indent=1, allow_nan=False))
        return
    from plots import gantt

    labels = _labels(first, others[0])
    alike = first.timeline.source is others[0].timeline.source
    print_comparison(comparison, labels, alike=alike)
    print_sides(comparison, labels)
    print_ratios(comparison, labels)
    title = f"{first.timeline.graph.program.name}: {labels[0]}, above {labels[1]}" if alike else None
    print(f"wrote {save_picture(gantt(*comparison.timelines, style='screen', title=title), output.folder)}")


def _sides(named: Sequence[Named]) -> tuple[Named, Sequence[Named]]:
    """Return the prediction and its measurements; of two timelines of one kind the first is what the second is held against."""
    simulated = [one for one in named if one.timeline.source is Source.SIMULATED]
    measured = [one for one in named if one.timeline.source is Source.MEASURED]
    if len(simulated) == 1 and measured:
        return simulated[0], measured
    if len(named) == 2:
        return named[0], named[1:]
    raise ArgumentError(
        f"{len(simulated)} simulated and {len(measured)} measured timelines: give one simulated and its measured ones, or any two"
    )


def _labels(first: Named, second: Named) -> tuple[str, str]:
    """Return what tells two timelines apart: what they are, or the files that they came from."""
    if first.timeline.source is not second.timeline.source:
        return first.word, second.word
    if first.name == second.name:
        return f"first {first.word}", f"second {second.word}"
    return f"{first.name} ({first.word})", f"{second.name} ({second.word})"


def print_comparison(comparison: Comparison, labels: tuple[str, str], *, alike: bool) -> None:
    """Print both sides under their labels, and where the difference comes from; `alike`: both predicted or both measured."""
    several = "" if alike else f"; {comparison.measurements} measured"
    print(f"{shape_text(comparison.timelines[0].graph.program)}{several}")
    print_table(["", *labels, "difference" if alike else "error"], _rows(comparison))
    whose = "the second's" if alike else "measured"
    kinds = ", ".join(f"{kind.replace('_', ' ')} {signed(error)}" for kind, error in comparison.duration_error_by_kind.items())
    start = comparison.start_error_fraction
    floor = comparison.noise_floor_fraction
    print(f"\ndurations  {signed(comparison.duration_error_fraction)} of the makespan: {kinds}")
    print(f"structure  {signed(comparison.structural_error_fraction)} of the makespan: the graph on {whose} durations")
    print(
        f"starts     off by {percent(start.median)} of the run (median), {percent(start.p95)} (95 %), {percent(start.max)} (most)"
    )
    print(f"order      {percent(min(comparison.order_agreement))} of pairs in the same order, on the worst device")
    print(f"path       critical paths overlap by {percent(comparison.critical_path_overlap)}")
    noise = "of a single step it is not known" if floor is None else f"{percent(floor)}: {noise_words(comparison.measurements)}"
    print(f"noise      {noise}")
    print(f"verdict    {MEANINGS[comparison.verdict]}" + (f"; {comparison.contention}" if comparison.contention else ""))


def _rows(comparison: Comparison) -> list[list[str]]:
    mine, theirs = comparison.predicted, comparison.measured
    makespan = relative_error(mine.makespan_s, theirs.makespan_s)
    rows = [
        ["step", seconds(mine.step_s), seconds(theirs.step_s), signed(comparison.step_error_fraction)],
        ["makespan", seconds(mine.makespan_s), seconds(theirs.makespan_s), signed(makespan)],
        _bubble("bubble of the whole run", mine.bubble_fraction, theirs.bubble_fraction),
        ["recompute", percent(mine.recompute_share), percent(theirs.recompute_share), ""],
    ]
    if mine.steady is not None and theirs.steady is not None:
        rows.insert(3, _bubble("bubble in steady state", mine.steady.bubble_fraction, theirs.steady.bubble_fraction))
        rows[0][0] = "step in steady state"
    if mine.peak_bytes is not None or theirs.peak_bytes is not None:
        rows.append(["peak", amount(mine.peak_bytes), amount(theirs.peak_bytes), ""])
    return rows


def _bubble(name: str, predicted: float, measured: float) -> list[str]:
    return [name, percent(predicted), percent(measured), points(predicted - measured)]


def _side_by_side(named: Sequence[Named], output: CompareOutput) -> None:
    """Put the figures of different programs side by side; their tasks do not correspond."""
    figures = [metrics(one.timeline) for one in named]
    if output.json:
        reports = [simulate_report(one.timeline, found) for one, found in zip(named, figures, strict=True)]
        print(json.dumps({"schema": "schedir.side-by-side/1", "schedules": reports}, indent=1, allow_nan=False))
        return
    from plots import comparison

    print("timelines of different programs: side by side, since their tasks do not correspond")
    steady = all(found.steady is not None for found in figures)
    bubble = "steady bubble" if steady else "bubble"
    columns = ["file", "schedule", "", "p", "m", "n", "per mini-batch", bubble, "makespan", "peak"]
    print_table(columns, [_line(one, found) for one, found in zip(named, figures, strict=True)])
    where = "" if steady else " where there is one"
    print(f"p devices, m micro-batches in each of n mini-batches; per mini-batch and bubble: in steady state{where}")
    print(f"wrote {save_picture(comparison(*(one.timeline for one in named), style='screen'), output.folder)}")


def _line(one: Named, figures: Metrics) -> list[str]:
    program = one.timeline.graph.program
    bubble = figures.bubble_fraction if figures.steady is None else figures.steady.bubble_fraction
    return [
        one.name,
        program.name,
        one.word,
        *(str(number) for number in (program.num_devices, program.num_micro_batches, program.num_mini_batches)),
        seconds(figures.step_s),
        percent(bubble),
        seconds(figures.makespan_s),
        amount(figures.peak_bytes),
    ]
