"""What a picture says in words: the schedule and its shape, the makespan and bubble, and the durations that were used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plots.held import LIMIT_IN_SIGHT, Held
from plots.paint import LEGEND_ORDER
from plots.text import SECONDS, DisplayUnit, drawable, show_bytes, show_seconds, unit_for, wrap
from schedir.errors import ArgumentError
from schedir.expect import expect
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.compile_options import CompileOptions
from schedir.ir.program import Program
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.shown import whole_name
from schedir.timeline.percent import percent, signed
from schedir.timeline.timeline import Source, Timeline

SOURCE_WORDS = {Source.SIMULATED: "predicted", Source.MEASURED: "measured"}
BOLD = 1.13
"""Width of bold text, in widths of plain text."""
DURATION_KINDS = (*LEGEND_ORDER[:5], Kind.OVERLAPPED, *LEGEND_ORDER[5:])
"""Order in which durations are printed."""
FREE_WORDS = {Kind.TRANSFER: "transfers", Kind.REDUCE: "reductions", Kind.UPDATE: "updates", Kind.PREDICT: "predictions"}
"""What is free when a kind takes no time."""


def check_timelines(timelines: Sequence[Timeline]) -> None:
    """Raise ArgumentError if there is nothing to draw."""
    if not timelines:
        raise ArgumentError("no timeline was given: give at least one")
    for timeline in timelines:
        expect(timeline, Timeline, "timeline", remedy="give what simulate, train(…).timeline or load_timeline returns")
        if not timeline.recorded.any():
            raise ArgumentError(f"timeline of {timeline.graph.program.name} has no recorded span: give one that has run")


def shape_parts(timeline: Timeline, *, one: bool = False, part: str = "") -> list[str]:
    """Return the schedule and its numbers: `1f1b`, `p = 4`, `m = 8`, …; behind its name the model, if meta has one.

    With `one` a single mini-batch is named, too. `part` says which of the mini-batches are drawn, where not all are.
    """
    program = timeline.graph.program
    model = timeline.meta.get("model")
    parts = [
        drawable(program.name),
        *([] if model is None else [str(model)]),
        f"p = {program.num_devices}",
        f"m = {program.num_micro_batches}",
    ]
    held = timeline.meta.get("stage_work")
    work = "" if held is None else f" {held}"
    if program.stages_per_device > 1:
        parts.append(f"{program.stages_per_device} stages per device{work}")
    elif program.num_stages != program.num_devices:  # replicas
        parts.append(f"{program.num_stages} stages{work}")
    elif work:
        parts.append(f"stages{work}")
    if part:
        parts.append(part)
    elif one or program.num_mini_batches > 1:
        parts.append(f"{program.num_mini_batches} mini-batch{'es' if program.num_mini_batches > 1 else ''}")
    options = timeline.graph.options
    if options.recompute_text != "never":
        parts.append(f"recompute {options.recompute_text}{'' if options.recompute_start == 'early' else ' on gradient'}")
    return parts


def subject(timeline: Timeline) -> tuple[Program, CompileOptions]:
    """Return what was run: timelines with the same subject are predictions and measurements of one thing."""
    return timeline.graph.program, timeline.graph.options


def result_parts(timeline: Timeline, predicted: Timeline | None = None) -> list[str]:
    """Return makespan and bubble, also of the steady state; beside times the error of the prediction, predicted / measured - 1.

    Each bubble has its name: a table beside the picture may show the other one.
    """
    figures = metrics(timeline)
    before = None if predicted is None else metrics(predicted)
    makespan = _against(figures.makespan_s, None if before is None else before.makespan_s)
    parts = [f"makespan {makespan}", f"{whole_name(timeline)} {percent(figures.bubble_fraction)}"]
    if figures.steady is not None:
        seconds = _against(figures.steady.seconds_per_mini_batch, None if before is None else before.step_s, " per mini-batch")
        parts += [f"steady state {seconds}", f"steady bubble {percent(figures.steady.bubble_fraction)}"]
    return parts


def _against(seconds: float, predicted: float | None, of: str = "") -> str:
    text = f"{show_seconds(seconds)}{of}"
    if predicted is None or not seconds > 0:
        return text
    return f"{text} (error {signed(predicted / seconds - 1)})"


def duration_parts(timeline: Timeline) -> list[str]:
    """Return what each kind of work took: `F 1 s`, `B 1.9–2.3 s`: least and most of the stages' medians where tasks vary.

    Of a prediction also what was taken as free, since somebody has set it so; what took no time to measure was not.
    """
    medians = {kind: _by_stage(timeline, kind) for kind in DURATION_KINDS if (timeline.graph.kind == kind).any()}
    largest = unit_for(max((values.max(initial=0) for values in medians.values()), default=0.0), SECONDS)
    taking = {kind: values.tolist() for kind, values in medians.items() if values.max(initial=0) > 0}
    varying = timeline.source is Source.MEASURED or timeline.meta.get("seed") is not None
    parts = [f"{_name(kind)} {_show(values, largest, 3 if varying else 4)}" for kind, values in taking.items()]
    if parts and varying:
        parts[0] = f"stages' medians {parts[0]}"
    if timeline.source is Source.MEASURED:
        return parts
    free = [FREE_WORDS.get(kind, kind.letter) for kind, values in medians.items() if kind not in taking and len(values)]
    return [*parts, *([f"taken as free: {', '.join(free)}"] if free else [])]


def _show(seconds: Sequence[float], unit: DisplayUnit, digits: int) -> str:
    """Return seconds in the unit of the other durations, or in a smaller one if they are below its tenth."""
    chosen = unit if max(seconds) >= 0.1 * unit.size else unit_for(max(seconds), SECONDS)
    return chosen.show(*seconds, digits=digits)


def _by_stage(timeline: Timeline, kind: Kind) -> Floats:
    """Return the median seconds of a kind's tasks for every stage that has any."""
    chosen = timeline.recorded & (timeline.graph.kind == kind)
    seconds, stage = (timeline.end - timeline.start)[chosen], timeline.graph.stage[chosen]
    order = np.argsort(stage, kind="stable")
    cuts = np.flatnonzero(np.diff(stage[order])) + 1
    return np.array([float(np.median(part)) for part in np.split(seconds[order], cuts) if len(part)])


def _name(kind: Kind) -> str:
    return kind.word if kind in {Kind.TRANSFER, Kind.REDUCE} else "F&B" if kind is Kind.OVERLAPPED else kind.letter


def held_text(held: Held, largest: float, *, whole: bool = True) -> list[str]:
    """Return what stands above the curves of memory; `largest` is the most that any curve of the picture reaches.

    Of a run that is not drawn whole the peak is that of the part.
    """
    parts = [f"{held.name} of each device", f"peak{'' if whole else ' of this part'} at the right"]
    known = [limit for limit in held.limit if limit is not None]
    if known:
        where = "dashed" if min(known) <= LIMIT_IN_SIGHT * largest else "out of sight"
        parts.append(f"limit {show_bytes(*known)} ({where})")
    return parts


@dataclass(frozen=True, slots=True)
class PanelText:
    """Lines above one panel."""

    bold: list[str]
    plain: list[str]


def panel_texts(
    timelines: Sequence[Timeline], parts: Sequence[str], *, title: str | None, width: float, size: float
) -> list[PanelText]:
    """Return the text above each panel, in lines of at most `width` points in a font of `size` points.

    A bold line names each program where it first occurs; `title` takes its place if all panels show the same one, else it
    stands above. `parts` say which mini-batches are drawn, empty where all are. With an empty title only several panels have
    text: what tells them apart.
    """
    subjects = [subject(timeline) for timeline in timelines]
    same = all(each == subjects[0] for each in subjects)
    differ = len({program.num_mini_batches for program, _ in subjects}) > 1
    texts = []
    for k, timeline in enumerate(timelines):
        again = k > 0 and subjects[k] == subjects[k - 1]
        named = again or (same and bool(title))
        bold = [] if named else [*shape_parts(timeline, one=differ, part=parts[k]), *_round_parts(timeline)]
        plain = _source_parts(timeline, timelines[k - 1] if again else None)
        if parts[k] and named and not again:  # the title has taken the place of the line that says so
            plain = [f"{parts[k]} drawn", *plain]
        if title == "":
            bold, plain = [], [*([] if same else bold[:1]), *([] if len(subjects) == 1 else [_label(timeline)])]
        heading = wrap([title], width, BOLD * size) if title and k == 0 else []
        texts.append(PanelText([*heading, *wrap(bold, width, BOLD * size)], wrap(plain, width, size)))
    return texts


def _round_parts(timeline: Timeline) -> list[str]:
    """Return which round of a comparison this is, and why little may be concluded from it, if meta says so."""
    return [str(timeline.meta[key]) for key in ("which_round", "caution") if key in timeline.meta]


def _label(timeline: Timeline) -> str:
    """Return what tells a timeline from others of its program: where it comes from, or what its meta calls it."""
    return drawable(str(timeline.meta.get("label", SOURCE_WORDS[timeline.source])))


def _source_parts(timeline: Timeline, before: Timeline | None) -> list[str]:
    predicted = before if before is not None and before.source is not timeline.source else None
    result = result_parts(timeline, predicted)
    return [f"{_label(timeline)}: {result[0]}", *result[1:], *duration_parts(timeline)]
