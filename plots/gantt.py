"""Gantt charts: what every device does when, predictions above measurements on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Unpack

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plots.bars import lay_out, place_rows
from plots.held import Held, begin_of, held_memory, largest_held
from plots.held_curves import draw_held, held_entries
from plots.labels import LabelForm, LabelRoom, choose_form, measure, write_labels
from plots.paint import ColorBy, legend_entries, paint_bars
from plots.panel import LINK_LABEL, TICK, Frame, Panel, draw_bars, row_label
from plots.sheet import LINE, Sheet
from plots.style import Look, LookOptions
from plots.summary import BOLD, check_timelines, held_text, panel_texts, subject
from plots.text import SECONDS, text_width, unit_for, wrap
from schedir.errors import ArgumentError
from schedir.ir.lanes import LaneKind
from schedir.timeline.timeline import Source, Timeline
from schedir.timeline.window import drawn_part, part_text, window

ROW = 1.9
"""Height of a device's row, in font sizes, where there is room."""
SMALLEST_ROW = 3.0
"""Points."""
ROOM_FOR_ROWS = 380.0
"""Points that the rows of all panels share before they get thinner."""
GAP = 0.7
"""Font sizes between panels."""


@dataclass(frozen=True, slots=True)
class _Chart:
    """The options of one picture."""

    look: Look
    color_by: ColorBy
    number_from: int
    links: bool
    memory: bool

    def panel(self, whole: Timeline, part: tuple[int, int] | None) -> Panel:
        """Lay out one timeline, or some mini-batches of it."""
        timeline = whole if part is None else window(whole, *part)
        rows = place_rows(timeline.graph, links=self.links)
        bars = lay_out(timeline, rows)
        painting = paint_bars(bars, self.look, self.color_by, num_micro_batches=timeline.graph.program.num_micro_batches)
        return Panel(timeline, rows, bars, painting, self._held(whole, timeline))

    def _held(self, whole: Timeline, drawn: Timeline) -> Held | None:
        """Return what is held while the drawn part runs: what was held before it still is, so it is cut out of the whole."""
        if not self.memory:
            return None
        held = held_memory(whole)
        if drawn is whole:
            return held
        low = begin_of(drawn) - begin_of(whole)
        return held.between(low, low + drawn.makespan_s)

    def part_text(self, timeline: Timeline, part: tuple[int, int] | None) -> str:
        """Say which mini-batches are drawn; nothing where all are."""
        if part is None:
            return ""
        first, last = (number + self.number_from + _numbered_from(timeline) for number in part)
        if "numbered_from" in timeline.meta:
            return f"mini-batches {first} to {last}"  # of how many nobody knows: a run goes on behind what was measured
        others = " and what runs meanwhile" if _has_others(timeline, part) else ""
        return part_text(first, last, timeline.graph.program.num_mini_batches) + others

    def frame(self, panels: Sequence[Panel]) -> Frame:
        """Return the sizes that fit all panels."""
        size = self.look.font_size
        peaks = [panel.held.show(panel.held.peak(d)) for panel in panels if panel.held for d in range(panel.num_devices)]
        rows = sum(panel.num_rows + (panel.num_devices if panel.held else 0) for panel in panels)
        row = min(ROW * size, max(SMALLEST_ROW, ROOM_FOR_ROWS / rows))
        named = min(panel.num_devices for panel in panels) * row < text_width("device", size)
        lanes = (lane for panel in panels for lane in panel.lanes)
        labels = ((row_label(lane, self.number_from, named=named), lane.kind is LaneKind.COMPUTE) for lane in lanes)
        widest = max(text_width(label, size if device else LINK_LABEL * size) for label, device in labels)
        longest = max(panel.timeline.makespan_s for panel in panels)
        return Frame(
            look=self.look,
            number_from=self.number_from,
            unit=unit_for(longest, SECONDS),
            longest=longest or 1.0,
            left=widest + (4 if named else LINE * size + 8),
            right=max([1.2 * size, *(BOLD * text_width(peak, size) + 8 for peak in peaks)]),
            row=row,
            named=named,
        )


def gantt(
    *timelines: Timeline,
    color_by: str = ColorBy.KIND,
    number_from: int = 0,
    memory: bool = False,
    links: bool = False,
    title: str | None = None,
    mini_batches: tuple[int, int] | int | None = None,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw timelines, one panel each, predictions above the measurements of the same program, on one time axis.

    A panel has a row per device, with `links` also one per link and reduction (a transfer leans from sender to receiver by
    its latency), and with `memory` what each device holds over time, against its limit. Bars are coloured by kind, stage
    or mini-batch and numbered by micro-batch where the number fits; `number_from` 0 or 1 is the number of the first device,
    stage, mini-batch and micro-batch. The text above a panel gives its makespan, bubble and the durations used; `title`
    takes the place of the first line, and an empty one leaves out all this text. `mini_batches` (first, last) draws only what
    happens between the end of the mini-batch before the first and the end of the last; a number draws at most so many, of the
    middle of the steady state. The text says which; its figures stay those of the whole run. Of a part of a
    longer run the meta's `numbered_from` is the number of its first mini-batch there.

    `width` is in inches and `font_size` in points (None: the style's own), `style` is paper, screen or gray. Raises
    ArgumentError for values that these rules exclude and for timelines without a span.
    """
    check_timelines(timelines)
    chart = _Chart(Look.of(**look), _color_by(color_by), _number_from(number_from), links, memory)
    ordered = _in_order(timelines)
    with rc_context(chart.look.settings()):
        return _draw(chart, ordered, _parts(ordered, mini_batches), title=title)


def _color_by(text: str) -> ColorBy:
    if text not in list(ColorBy):
        raise ArgumentError(f"color_by {text!r} is unknown: use one of {', '.join(ColorBy)}")
    return ColorBy(text)


def _number_from(number: int) -> int:
    if number not in {0, 1}:
        raise ArgumentError(f"number_from {number!r} is neither 0 nor 1: programs count from 0, papers often from 1")
    return int(number)


def _numbered_from(timeline: Timeline) -> int:
    return int(timeline.meta.get("numbered_from", 0))


def _parts(timelines: Sequence[Timeline], wanted: tuple[int, int] | int | None) -> list[tuple[int, int] | None]:
    """Return first and last of the mini-batches that are drawn of every timeline, None where all are."""
    if isinstance(wanted, int) and wanted < 1:
        raise ArgumentError(f"mini_batches {wanted} must be at least 1, or first and last")
    most = max(timeline.graph.program.num_mini_batches for timeline in timelines)
    return [drawn_part(timeline, wanted, most=most) for timeline in timelines]


def _has_others(timeline: Timeline, part: tuple[int, int]) -> bool:
    """Tell whether tasks of other mini-batches run, too, while these end: without a flush they overlap."""
    drawn, graph = window(timeline, *part), timeline.graph
    compute = slice(0, graph.num_compute_tasks)
    # what was cut down to nothing is no bar
    seen = drawn.recorded[compute] & (drawn.end > drawn.start)[compute] & (graph.micro_batch[compute] >= 0)
    mini_batches = graph.micro_batch[compute][seen] // graph.program.num_micro_batches
    return bool(((mini_batches < part[0]) | (mini_batches > part[1])).any())


def _in_order(timelines: Sequence[Timeline]) -> list[Timeline]:
    """Keep the order of what was run, but move each prediction before its measurement."""
    subjects = [subject(timeline) for timeline in timelines]
    keyed = zip((subjects.index(each) for each in subjects), timelines, strict=True)
    return [timeline for _, timeline in sorted(keyed, key=lambda pair: (pair[0], pair[1].source is Source.MEASURED))]


def _draw(chart: _Chart, timelines: Sequence[Timeline], parts: Sequence[tuple[int, int] | None], *, title: str | None) -> Figure:
    panels = [chart.panel(*each) for each in zip(timelines, parts, strict=True)]
    chart, form = _with_room(chart, panels)
    look, frame = chart.look, chart.frame(panels)
    sheet = Sheet(look, frame.left, frame.right)
    named = [chart.part_text(*each) for each in zip(timelines, parts, strict=True)]
    texts = panel_texts(timelines, named, title=title, width=sheet.text_width, size=look.font_size)
    largest = largest_held([panel.held for panel in panels if panel.held])
    sheet.skip(4)
    for panel, text, part in zip(panels, texts, parts, strict=True):
        sheet.write(text.bold, bold=True)
        sheet.write(text.plain)
        sheet.axes(panel.num_rows * frame.row, partial(_draw_panel, panel, frame, chart=chart, form=form))
        sheet.skip(GAP * look.font_size)
        if panel.held:
            most = largest[panel.held.name]
            sheet.write(wrap(held_text(panel.held, most, whole=part is None), sheet.text_width, look.font_size))
            sheet.axes(panel.num_devices * frame.row, partial(draw_held, panel, frame, largest=most))
            sheet.skip(GAP * look.font_size)
    sheet.skip(TICK + (2 * LINE - GAP + 0.3) * look.font_size + 3)
    sheet.legend(legend_entries([panel.painting for panel in panels], look, chart.color_by, number_from=chart.number_from))
    sheet.legend(held_entries([panel.held for panel in panels if panel.held], look))
    sheet.skip(4)
    figure = sheet.finish()
    _finish_time(figure.axes, frame, cut=len(parts) > 1 and any(part and part[0] for part in parts))
    return figure


def _with_room(chart: _Chart, panels: Sequence[Panel]) -> tuple[_Chart, LabelForm]:
    """Return the form of the labels, and the chart: wider, if its width may grow and labels have no room otherwise."""
    wider = (replace(chart, look=look) for look in chart.look.wider())
    for each in (chart, *wider):
        frame = each.frame(panels)
        form, enough = choose_form([_room(panel, frame, each) for panel in panels], each.look.font_size, each.number_from)
        if enough:
            return each, form
    # no width is enough: the usual one will do, where a bar without room stays empty
    frame = chart.frame(panels)
    return chart, choose_form([_room(panel, frame, chart) for panel in panels], chart.look.font_size, chart.number_from)[0]


def _room(panel: Panel, frame: Frame, chart: _Chart) -> LabelRoom:
    several = panel.timeline.graph.program.stages_per_device > 1
    stages = several and chart.color_by is not ColorBy.STAGE  # there the colour says it
    first = _numbered_from(panel.timeline) * panel.timeline.graph.program.num_micro_batches
    return measure(panel.bars, frame.points_per_second, frame.row, stages=stages, first_micro_batch=first)


def _draw_panel(panel: Panel, frame: Frame, axes: Axes, *, chart: _Chart, form: LabelForm) -> None:
    draw_bars(panel, frame, axes)
    room = _room(panel, frame, chart)
    write_labels(axes, room, form, painting=panel.painting, unit=frame.unit.size)


def _finish_time(axes: Sequence[Axes], frame: Frame, *, cut: bool) -> None:
    """Let all panels show the same times; the lowest names them, and says so where panels are aligned at the start of a part."""
    size = frame.look.font_size
    room = frame.points_per_second * frame.longest
    for each in axes:
        each.set_xlim(0, frame.longest / frame.unit.size)
        each.xaxis.set_major_locator(MaxNLocator(max(1, min(12, int(room / (4.5 * size)))), steps=[1, 2, 5, 10]))
        each.tick_params(axis="x", length=TICK, pad=2, labelbottom=each is axes[-1])
    since = ", in each panel from the start of its own part" if cut else ""
    axes[-1].set_xlabel(f"time ({frame.unit.name}){since}", labelpad=2)
