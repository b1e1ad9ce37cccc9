"""Schedules side by side: time, bubble, memory and versions of each, predicted and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Unpack

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.paint import Entry, Paint
from plots.palette import EDGE_COLOUR
from plots.sheet import LINE, POINTS_PER_INCH, Sheet
from plots.style import Look, LookOptions
from plots.summary import BOLD, SOURCE_WORDS, check_timelines, shape_parts, subject
from plots.text import BYTES, SECONDS, drawable, text_width, unit_for, wrap
from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.metrics.shown import basis_words, bubble_name, shown_bubble
from schedir.timeline.percent import percent, signed
from schedir.timeline.timeline import Source, Timeline

COLOURS = {Source.SIMULATED: Paint("#0072B2"), Source.MEASURED: Paint("#E69F00")}
GREYS = {Source.SIMULATED: Paint("#787878"), Source.MEASURED: Paint("#FFFFFF", "////")}
BAR = 1.25
"""Height of a bar, in font sizes."""
GAP = 0.6
"""Between the bars of two schedules, in font sizes."""
NARROWEST = 10.0
"""A column is at least this many font sizes wide; where the page is too narrow, columns stand below each other."""
NAMES = 0.35
"""Most of the page's width that names take; longer ones break."""
COLUMN_GAP = 12.0
"""Points between columns."""
TIME = "time per mini-batch"


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One schedule: its name in lines, and its figures by source."""

    name: list[str]
    num_micro_batches: int
    """Micro-batches of a mini-batch."""
    figures: dict[Source, list[Metrics]]
    """By source those of every round, one where there are no rounds."""
    noise_of: list[str]
    """What the noise floor holds against what; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of all schedules."""

    heading: str
    values: list[dict[Source, list[float]]]
    """One dict per schedule, of each source the values of all rounds."""
    show: Callable[[float], str]

    @property
    def range(self) -> tuple[float, float]:
        """Where the axis begins and the longest bar or whisker ends: at 0, or below it where a value is negative."""
        values = [value for values in self.values for rounds in values.values() for value in rounds]
        return min(0.0, *values), max(0.0, *values)


def comparison(*timelines: Timeline, title: str | None = None, **look: Unpack[LookOptions]) -> Figure:
    """Draw schedules side by side: seconds per mini-batch, bubble, peak memory and versions of weights.

    Timelines of one program share a row, its prediction above its measurement; those that their meta gives a `label` share it
    with those of the same label. Several of one source are rounds, the first prediction of the first measurement: bars are then
    medians, whiskers reach from least to most, and the error is the median of the rounds' own. Time and bubble are those of the
    steady state where there is one. Memory is the fullest device's, in bytes if all timelines carry them, else in live
    activations: (stage, micro-batch) pairs, divided by the micro-batches of a mini-batch where those differ. A row is named
    by its schedule and by what its shape does not share with all others; `title` takes the place of the line that names
    the rest. Where both are there, the error of the predicted time (predicted / measured - 1) stands below the name, with the
    measurement's noise floor if its meta has one. A `caution` in its meta stands in bold above all.
    Options `width`, `font_size`, `style` as for `gantt`. Raises ArgumentError.
    """
    check_timelines(timelines)
    chosen = Look.of(**look)
    sides, shared = _sides(timelines)
    widest = NAMES * chosen.width * POINTS_PER_INCH
    for side in sides:
        side.name[:] = [line for part in side.name for line in wrap([part], widest, chosen.font_size)]
    sources = [source for source in SOURCE_WORDS if any(source in side.figures for side in sides)]
    heading = ", ".join(shared) if title is None else title
    cautions = dict.fromkeys(str(timeline.meta["caution"]) for timeline in timelines if "caution" in timeline.meta)
    with rc_context(chosen.settings()):
        return _Table(chosen, sides, sources).draw("; ".join([*([heading] if heading else []), *cautions]))


def _sides(timelines: Sequence[Timeline]) -> tuple[list[Side], list[str]]:
    """Return the rows, and what all their shapes have in common."""
    keys = [(subject(timeline), timeline.meta.get("label")) for timeline in timelines]
    shapes = {key: shape_parts(timeline) for key, timeline in zip(keys, timelines, strict=True)}
    shared = [part for part in next(iter(shapes.values()))[1:] if all(part in shape for shape in shapes.values())]
    sides = {key: Side(_name(shape, shared, key[1]), key[0][0].num_micro_batches, {}, []) for key, shape in shapes.items()}
    for key, timeline in zip(keys, timelines, strict=True):
        sides[key].figures.setdefault(timeline.source, []).append(metrics(timeline))
    # rounds of one measurement have the same marks
    measured = {key: line for key, line in zip(keys, timelines, strict=True) if line.source is Source.MEASURED}
    for key, timeline in measured.items():
        sides[key].noise_of.append(timeline.meta.get("noise_floor_of", "the measurement against itself"))
        sides[key].name.extend(_error(sides[key].figures, timeline.meta.get("noise_floor_fraction")))
    return list(sides.values()), shared


def _name(shape: Sequence[str], shared: Sequence[str], label: str | None) -> list[str]:
    """Return the lines that name a row: the schedule, what its timeline is called, and what not all shapes have."""
    own = [] if label in {None, shape[0]} else [drawable(str(label))]
    return [shape[0], *own, *(part for part in shape[1:] if part not in shared)]


def _error(figures: dict[Source, list[Metrics]], noise: float | None) -> list[str]:
    """Return lines that say by how much the predicted time is wrong, over rounds also from where to where, and the noise."""
    rounds = list(zip(figures.get(Source.SIMULATED, []), figures[Source.MEASURED], strict=False))
    errors = [predicted.step_s / measured.step_s - 1.0 for predicted, measured in rounds if measured.step_s > 0]
    if not errors:
        return []
    ends = [f"({signed(min(errors))} to {signed(max(errors))})"] if len(errors) > 1 else []
    return [f"error {signed(float(np.median(errors)))}", *ends, *([] if noise is None else [f"noise {percent(noise)}"])]


def columns_of(sides: Sequence[Side]) -> list[Column]:
    """Return what is compared."""
    seconds = _values(sides, lambda figures: figures.step_s)
    unit = unit_for(_largest(seconds), SECONDS)
    return [
        Column(TIME, seconds, unit.show),
        Column(bubble_name(_all(sides)), _values(sides, shown_bubble), percent),
        _memory(sides),
        Column("versions of weights", _values(sides, _versions), _count),
    ]


Values = list[dict[Source, list[float]]]
"""As a column has them."""


def _values(sides: Sequence[Side], value: Callable[[Metrics], float]) -> Values:
    return [{source: [value(each) for each in rounds] for source, rounds in side.figures.items()} for side in sides]


def _flat(values: Values) -> list[float]:
    return [value for by_source in values for rounds in by_source.values() for value in rounds]


def _largest(values: Values) -> float:
    return max(_flat(values))


def _all(sides: Sequence[Side]) -> list[Metrics]:
    return [figures for side in sides for rounds in side.figures.values() for figures in rounds]


def _memory(sides: Sequence[Side]) -> Column:
    peaks = _values(sides, lambda figures: float("nan") if figures.peak_bytes is None else figures.peak_bytes)
    if not any(map(isnan, _flat(peaks))):
        return Column("peak memory", peaks, unit_for(_largest(peaks), BYTES).show)
    live = _values(sides, lambda figures: max(row.peak_live_activations for row in figures.devices))
    if len({side.num_micro_batches for side in sides}) == 1:
        return Column("live activations", live, _count)
    parts = zip(sides, live, strict=True)
    shares = [
        {source: [count / side.num_micro_batches for count in rounds] for source, rounds in counts.items()}
        for side, counts in parts
    ]
    return Column("live, in mini-batches", shares, _count)


def _versions(figures: Metrics) -> float:
    return max(stage.weight_versions for stage in figures.stages)


def _count(value: float) -> str:
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The picture: a row per schedule, a column per figure."""

    look: Look
    sides: list[Side]
    sources: list[Source]
    """Sources that occur, predictions first."""

    @property
    def row(self) -> float:
        """Height of a schedule's row in points."""
        lines = max(len(side.name) for side in self.sides)
        return (max(len(self.sources) * BAR, lines * LINE) + GAP) * self.look.font_size

    @property
    def paints(self) -> dict[Source, Paint]:
        return GREYS if self.look.gray else COLOURS

    def draw(self, title: str) -> Figure:
        """Draw the whole picture."""
        size, columns = self.look.font_size, columns_of(self.sides)
        sheet = Sheet(self.look, max(text_width(line, size) for side in self.sides for line in side.name) + 10, 4.0)
        needed = max([NARROWEST * size, *(text_width(column.heading, size) for column in columns)])
        abreast = next((n for n in (4, 2) if sheet.column_width(n, COLUMN_GAP) >= needed), 1)
        sheet.skip(4)
        sheet.write(wrap([title] if title else [], sheet.text_width, BOLD * size), bold=True)
        sheet.write(wrap(_explanations(self.sides), sheet.text_width, size, separator="; "))
        for first in range(0, len(columns), abreast):
            sheet.skip((LINE + 0.4) * size)
            draws = [partial(self._draw_column, column) for column in columns[first : first + abreast]]
            sheet.columns(len(self.sides) * self.row, draws, COLUMN_GAP)
            sheet.skip(0.5 * size)
        if len(self.sources) > 1:
            sheet.legend([Entry(SOURCE_WORDS[source], (self.paints[source],)) for source in self.sources])
        sheet.skip(4)
        figure = sheet.finish()
        for axes in figure.axes[::abreast]:
            axes.set_yticks(range(len(self.sides)), ["\n".join(side.name) for side in self.sides])
        return figure

    def _draw_column(self, column: Column, axes: Axes) -> None:
        size = self.look.font_size
        height = BAR * size / self.row
        for number, source in enumerate(self.sources):
            rows = [row for row, values in enumerate(column.values) if source in values]
            rounds = [column.values[row][source] for row in rows]
            values = [float(np.median(each)) for each in rounds]
            centre = np.array(rows) + (number - (len(self.sources) - 1) / 2) * height
            paint = self.paints[source]
            axes.barh(centre, values, 0.86 * height, color=paint.fill, hatch=paint.hatch, edgecolor=EDGE_COLOUR, linewidth=0.4)
            for y, value, each in zip(centre.tolist(), values, rounds, strict=True):
                if min(each) < max(each):
                    axes.plot([min(each), max(each)], [y, y], color=EDGE_COLOUR, linewidth=0.8, marker="|", markersize=4)
                place = (max(*each, 0.0), y)  # beside a bar to the left of the axis there is no room
                axes.annotate(column.show(value), place, (3, 0), textcoords="offset points", va="center_baseline")
        self._frame(column, axes)

    def _frame(self, column: Column, axes: Axes) -> None:
        """Leave room for the numbers behind the bars, which need no axis then."""
        size = self.look.font_size
        width = axes.get_position().width * self.look.width * POINTS_PER_INCH
        room = max((text_width(column.show(value), size) for value in _flat(column.values)), default=0.0) + 6
        low, high = column.range
        # the longest bar and the number behind it fill the column; bars keep a fifth of it, however wide the numbers are
        per_point = (high - low or 1.0) / max(width - room, 0.2 * width)
        axes.set_xlim(low, max(low + per_point * width, room * per_point))
        axes.axvline(0.0, color=EDGE_COLOUR, linewidth=0.6)
        axes.set_ylim(len(self.sides) - 0.5, -0.5)
        axes.set_title(column.heading, loc="left", fontsize=size, pad=3)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.tick_params(axis="y", length=0)
        axes.spines[:].set_visible(False)


def _explanations(sides: Sequence[Side]) -> list[str]:
    """Say which time and bubble are shown, and what is not plain about them."""
    figures = _all(sides)
    lines = []
    if any(each.steady is not None for each in figures):
        lines.append(f"time and bubble {basis_words(figures)}")
    rounds = max(len(each) for side in sides for each in side.figures.values())
    if rounds > 1:
        lines.append(f"bars: medians of {rounds} rounds, whiskers: least to most")
    if any(line.startswith("error ") for side in sides for line in side.name):
        lines.append("error: predicted / measured − 1" + (", median of the rounds' own (least to most)" if rounds > 1 else ""))
    noisy = [side for side in sides if any(line.startswith("noise ") for line in side.name)]
    lines += [f"noise: {words}" for words in dict.fromkeys(words for side in noisy for words in side.noise_of)]
    if any(shown_bubble(each) < 0 for each in figures):
        lines.append("below 0: tasks took longer before and after it")
    return lines
