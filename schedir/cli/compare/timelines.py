"""Timelines against each other: of one program task by task, a prediction and what was measured or any two; else side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from schedir.cli.compare.details import print_ratios, print_sides
from schedir.cli.compare.options import PICTURE, CompareOutput, save_picture
from schedir.cli.flags.parts import part_line, readable_part
from schedir.cli.screen.progress import Underway
from schedir.cli.screen.screen import amount, print_table, seconds, shape_text
from schedir.compiler import load_timelines
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from schedir.timeline.comparison.compare import Comparison, Verdict, compare, relative_error
from schedir.timeline.comparison.noise_floor import noise_words
from schedir.timeline.comparison.report import compare_report
from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.metrics.shown import STEADY, WHOLE, basis_words, bubble_name, shown_bubble
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

    name: str
    """As much of the file's path as tells it from the others, without what every trace is called."""
    timeline: Timeline

    @property
    def word(self) -> str:
        """What it is."""
        return WORDS[self.timeline.source]

    def labelled(self) -> Timeline:
        """Return the timeline with the name of its file, which pictures show."""
        return _labelled(self.timeline, self.name)


def short_names(files: Sequence[str]) -> dict[str, str]:
    """Return by file the shortest end of its path that no other file has: `train`, or `mon/train` beside `tue/train`."""
    parts = {file: Path(file).parts for file in files}
    for count in range(1, max(map(len, parts.values())) + 1):
        names = {file: _bare("/".join(part[-count:])) for file, part in parts.items()}
        if len(set(names.values())) == len(names):
            return names
    return {file: file for file in parts}


def _bare(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".json").removesuffix(".trace")


def compare_timelines(sources: Sequence[str], output: CompareOutput) -> None:
    """Compare the timelines of some files, and draw them."""
    from schedir.cli.flags.sources import is_timeline

    others = [source for source in sources if not is_timeline(source)]
    if others:
        file = next(filter(is_timeline, sources))
        raise ArgumentError(f"{others[0]} is no timeline file (.json, .json.gz), but {file} is: compare files or schedules")
    with Underway(f"reads {', '.join(sources)}"):
        names = short_names(sources)
        named = [Named(names[source], timeline) for source in sources for timeline in load_timelines(Path(source))]
    if any(not _same(named[0].timeline.graph, one.timeline.graph) for one in named):
        _side_by_side(named, output)
    else:
        _task_by_task(named, output)


def _same(one: TaskGraph, other: TaskGraph) -> bool:
    return one.program == other.program and one.options == other.options


def _task_by_task(named: Sequence[Named], output: CompareOutput) -> None:
    first, others = _sides(named)
    with Underway("compares task by task"):
        comparison = compare(first.timeline, [one.timeline for one in others])
    if output.json:
        print(json.dumps(compare_report(comparison), indent=1, allow_nan=False))
        return
    labels = _labels(first, others[0])
    alike = first.timeline.source is others[0].timeline.source
    print_comparison(comparison, labels, alike=alike)
    print_sides(comparison, labels)
    print_ratios(comparison, labels)
    shown = [_labelled(*pair) for pair in zip(comparison.timelines, labels, strict=True)] if alike else comparison.timelines
    print(f"wrote {_draw(shown, output)}")


def _labelled(timeline: Timeline, label: str) -> Timeline:
    """Return the timeline with what stands above it in pictures, where its source does not tell it from the other."""
    return replace(timeline, meta={**timeline.meta, "label": label})


def _draw(timelines: Sequence[Timeline], output: CompareOutput) -> str:
    """Draw timelines of one program, of a long one some mini-batches of the steady state; return where, and which."""
    from plots import gantt

    drawn = readable_part(timelines, from_start=False)
    with Underway(f"draws {output.folder / PICTURE}", logged=True):
        place = save_picture(gantt(*timelines, style="screen", mini_batches=drawn), output.folder)
    line = part_line(timelines, drawn)
    return place + (f": {line}; schedir plot --part all draws all" if line else "")


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
        _bubble(WHOLE, mine.bubble_fraction, theirs.bubble_fraction),
        ["recompute", percent(mine.recompute_share), percent(theirs.recompute_share), ""],
    ]
    if mine.steady is not None and theirs.steady is not None:
        rows.insert(3, _bubble(STEADY, mine.steady.bubble_fraction, theirs.steady.bubble_fraction))
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
    columns = ["file", "schedule", "", "p", "m", "n", "per mini-batch", bubble_name(figures), "makespan", "peak"]
    print_table(columns, [_line(one, found) for one, found in zip(named, figures, strict=True)])
    print(f"p devices, m micro-batches in each of n mini-batches; per mini-batch and bubble: {basis_words(figures)}")
    with Underway(f"draws {output.folder / PICTURE}", logged=True):
        place = save_picture(comparison(*(one.labelled() for one in named), style="screen"), output.folder)
    print(f"wrote {place}")


def _line(one: Named, figures: Metrics) -> list[str]:
    program = one.timeline.graph.program
    return [
        one.name,
        program.name,
        one.word,
        *(str(number) for number in (program.num_devices, program.num_micro_batches, program.num_mini_batches)),
        seconds(figures.step_s),
        percent(shown_bubble(figures)),
        seconds(figures.makespan_s),
        amount(figures.peak_bytes),
    ]
