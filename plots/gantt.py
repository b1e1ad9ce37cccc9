"""Gantt charts: what every device does when, predictions above measurements on one time axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Unpack

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plots.bars import lay_out, place_rows
from plots.held import held_memory, largest_held
from plots.labels import LabelForm, choose_form, measure, write_labels
from plots.paint import ColorBy, legend_entries, paint_bars
from plots.panel import LINK_LABEL, TICK, Frame, Panel, draw_bars, draw_held, row_label
from plots.sheet import LINE, Sheet
from plots.style import Look, LookOptions
from plots.summary import BOLD, check_timelines, held_text, panel_texts, subject
from plots.text import SECONDS, text_width, unit_for, wrap
from schedir.errors import ArgumentError
from schedir.ir.graph import LaneKind
from schedir.timeline.timeline import Source, Timeline
from schedir.timeline.window import window

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
    window: tuple[int, int] | None

    def panel(self, whole: Timeline) -> Panel:
        """Lay out one timeline."""
        timeline = whole if self.window is None else window(whole, *self.window)
        rows = place_rows(timeline.graph, links=self.links)
        bars = lay_out(timeline, rows)
        painting = paint_bars(bars, self.look, self.color_by, num_micro_batches=timeline.graph.program.num_micro_batches)
        return Panel(timeline, rows, bars, painting, held_memory(timeline) if self.memory else None)

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
    mini_batches: tuple[int, int] | None = None,
    **look: Unpack[LookOptions],
) -> Figure:
    """Draw timelines, one panel each, predictions above the measurements of the same program, on one time axis.

    A panel has a row per device, with `links` also one per link and reduction (a transfer leans from sender to receiver by
    its latency), and with `memory` what each device holds over time, against its limit. Bars are coloured by kind, stage
    or mini-batch and numbered by micro-batch where the number fits; `number_from` 0 or 1 is the number of the first device,
    stage, mini-batch and micro-batch. The text above a panel gives its makespan, bubble and the durations used; `title`
    takes the place of the first line, and an empty one leaves out all this text. `mini_batches` (first, last) draws only what
    happens between the end of the mini-batch before the first and the end of the last; the text stays that of the whole run.

    `width` is in inches and `font_size` in points (None: the style's own), `style` is paper, screen or gray. Raises
    ArgumentError for values that these rules exclude and for timelines without a span.
    """
    check_timelines(timelines)
    if memory and mini_batches is not None:
        raise ArgumentError("memory is drawn over whole runs: leave out memory or mini_batches")
    chart = _Chart(Look.of(**look), _color_by(color_by), _number_from(number_from), links, memory, mini_batches)
    with rc_context(chart.look.settings()):
        return _draw(chart, _in_order(timelines), title)


def _color_by(text: str) -> ColorBy:
    if text not in list(ColorBy):
        raise ArgumentError(f"color_by {text!r} is unknown: use one of {', '.join(ColorBy)}")
    return ColorBy(text)


def _number_from(number: int) -> int:
    if number not in {0, 1}:
        raise ArgumentError(f"number_from {number!r} is neither 0 nor 1: programs count from 0, papers often from 1")
    return int(number)


def _in_order(timelines: Sequence[Timeline]) -> list[Timeline]:
    """Keep the order of what was run, but move each prediction before its measurement."""
    subjects = [subject(timeline) for timeline in timelines]
    keyed = zip((subjects.index(each) for each in subjects), timelines, strict=True)
    return [timeline for _, timeline in sorted(keyed, key=lambda pair: (pair[0], pair[1].source is Source.MEASURED))]


def _draw(chart: _Chart, timelines: Sequence[Timeline], title: str | None) -> Figure:
    panels = [chart.panel(timeline) for timeline in timelines]
    look, frame = chart.look, chart.frame(panels)
    sheet = Sheet(look, frame.left, frame.right)
    texts = panel_texts(timelines, title=title, width=sheet.text_width, size=look.font_size)
    form = _choose_form(chart, panels, frame)
    largest = largest_held([panel.held for panel in panels if panel.held])
    sheet.skip(4)
    for panel, text in zip(panels, texts, strict=True):
        sheet.write(text.bold, bold=True)
        sheet.write(text.plain)
        sheet.axes(panel.num_rows * frame.row, partial(_draw_panel, panel, frame, form=form))
        sheet.skip(GAP * look.font_size)
        if panel.held:
            most = largest[panel.held.name]
            sheet.write(wrap(held_text(panel.held, most), sheet.text_width, look.font_size))
            sheet.axes(panel.num_devices * frame.row, partial(draw_held, panel, frame, largest=most))
            sheet.skip(GAP * look.font_size)
    sheet.skip(TICK + (2 * LINE - GAP + 0.3) * look.font_size + 3)
    sheet.legend(legend_entries([panel.painting for panel in panels], look, chart.color_by, number_from=chart.number_from))
    sheet.skip(4)
    figure = sheet.finish()
    _finish_time(figure.axes, frame)
    return figure


def _choose_form(chart: _Chart, panels: Sequence[Panel], frame: Frame) -> LabelForm:
    rooms = [measure(panel.bars, frame.points_per_second, frame.row) for panel in panels]
    several = any(panel.timeline.graph.program.stages_per_device > 1 for panel in panels)
    stages = several and chart.color_by is not ColorBy.STAGE  # there the colour says it
    return choose_form(rooms, chart.look.font_size, chart.number_from, stages=stages)


def _draw_panel(panel: Panel, frame: Frame, axes: Axes, *, form: LabelForm) -> None:
    draw_bars(panel, frame, axes)
    room = measure(panel.bars, frame.points_per_second, frame.row)
    write_labels(axes, room, form, painting=panel.painting, unit=frame.unit.size)


def _finish_time(axes: Sequence[Axes], frame: Frame) -> None:
    """Let all panels show the same times; the lowest names them."""
    size = frame.look.font_size
    room = frame.points_per_second * frame.longest
    for each in axes:
        each.set_xlim(0, frame.longest / frame.unit.size)
        each.xaxis.set_major_locator(MaxNLocator(max(1, min(12, int(room / (4.5 * size)))), steps=[1, 2, 5, 10]))
        each.tick_params(axis="x", length=TICK, pad=2, labelbottom=each is axes[-1])
    axes[-1].set_xlabel(f"time ({frame.unit.name})", labelpad=2)
