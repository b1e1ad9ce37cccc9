"""One panel of a Gantt chart: how large it is, and how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from plots.bars import MARGIN, Bars, Row
from plots.held import Held
from plots.paint import Painting
from plots.style import Look
from plots.text import DisplayUnit
from schedir.ir.action import Kind
from schedir.ir.lanes import Lane, LaneKind
from schedir.timeline.timeline import Timeline

OUTLINED = 2.5
"""Points: bars get outlines if half of them are at least so wide."""
MOST_VECTORS = 4000
"""A panel with more bars than this is drawn as an image inside SVG and PDF files."""
LINK_LABEL = 0.8
"""Size of the labels of links, in font sizes."""
TICK = 3.0
"""Points: length of the marks on the time axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """One timeline, laid out."""

    timeline: Timeline
    rows: tuple[Row, ...]
    bars: Bars
    painting: Painting
    held: Held | None
    """Shown under the bars if given."""

    @property
    def num_rows(self) -> float:
        """Height in rows of devices, without memory."""
        return sum(row.height for row in self.rows)

    @property
    def lanes(self) -> list[Lane]:
        """Lanes that have a row."""
        return [self.timeline.graph.lanes[row.lane] for row in self.rows]

    @property
    def num_devices(self) -> int:
        return self.timeline.graph.program.num_devices


@dataclass(frozen=True, slots=True)
class Frame:
    """What all panels of a picture share; lengths in points."""

    look: Look
    number_from: int
    unit: DisplayUnit
    """Of time."""
    longest: float
    """Seconds: where the time axis ends."""
    left: float
    right: float
    row: float
    """Height of a device's row."""
    named: bool
    """Rows are labelled `device 0`, since there is no room for the word beside them."""

    @property
    def points_per_second(self) -> float:
        return (self.look.width * 72 - self.left - self.right) / self.longest


def row_label(lane: Lane, number_from: int, *, named: bool) -> str:
    """Return what stands left of a row: `0` or `device 0`, `0→1`, `Σ 2` for the reductions of stage 2.

    `Σ 0=3` is for those of a tie, `Σ` for what all stages decide by.
    """
    if lane.kind is LaneKind.LINK:
        return f"{lane.device + number_from}→{lane.peer + number_from}"
    if lane.over_model:
        return "Σ"
    if lane.kind is LaneKind.REDUCE:
        return f"Σ {'='.join(str(stage + number_from) for stage in lane.tie or (lane.peer,))}"
    return device_label(lane.device + number_from, named=named)


def device_label(number: int, *, named: bool) -> str:
    """Return what stands left of a device's row."""
    return f"device {number}" if named else str(number)


def draw_bars(panel: Panel, frame: Frame, axes: Axes) -> None:
    """Draw a panel's rows, bars and labels of rows; text in bars is written apart."""
    axes.set_ylim(panel.num_rows, 0)
    _draw_idle(axes, panel, frame)
    bars, painting = panel.bars, panel.painting
    image = len(bars) > MOST_VECTORS
    outlined = _is_outlined(bars, frame)
    for number, paint in enumerate(painting.paints):
        corners = bars.vertices(np.flatnonzero(painting.index == number))
        corners[:, :, 0] /= frame.unit.size
        axes.add_collection(
            PolyCollection(
                list(corners),
                facecolors=paint.fill,
                edgecolors=paint.edge,
                linewidths=0.4 if outlined or paint.line else 0.0,
                hatch=paint.hatch or None,
                rasterized=image,
                clip_on=False,
                zorder=2,
            ),
            autolim=False,
        )
    _label_rows(axes, panel, frame)


def _is_outlined(bars: Bars, frame: Frame) -> bool:
    width = (bars.right - bars.left)[bars.kind != Kind.TRANSFER]
    return bool(len(width)) and float(np.median(width)) * frame.points_per_second >= OUTLINED


def _draw_idle(axes: Axes, panel: Panel, frame: Frame) -> None:
    """Draw the rows of devices, as long as the run, so that idle time is seen."""
    rows = [row for row in panel.rows if row.device]
    end = panel.timeline.makespan_s / frame.unit.size
    spans = [(row.top + MARGIN, row.top + row.height - MARGIN) for row in rows]
    boxes = [((0, top), (end, top), (end, bottom), (0, bottom)) for top, bottom in spans]
    edge = "#AAAAAA" if frame.look.gray else "none"
    axes.add_collection(
        PolyCollection(boxes, facecolors=frame.look.idle_colour, edgecolors=edge, linewidths=0.4, zorder=1), autolim=False
    )


def _label_rows(axes: Axes, panel: Panel, frame: Frame) -> None:
    size, lanes = frame.look.font_size, panel.timeline.graph.lanes
    devices = [row for row in panel.rows if row.device]
    step = label_step(size, frame.row * panel.num_rows / len(devices))
    places = [(row, size) for row in devices[::step]]
    if frame.row * min(row.height for row in panel.rows) >= LINK_LABEL * size:
        places += [(row, LINK_LABEL * size) for row in panel.rows if not row.device]
    axes.set_yticks(
        [row.top + row.height / 2 for row, _ in places],
        [row_label(lanes[row.lane], frame.number_from, named=frame.named) for row, _ in places],
    )
    for tick, (_, font) in zip(axes.get_yticklabels(), places, strict=True):
        tick.set_fontsize(font)
    finish_rows(axes, frame)


def label_step(size: float, row: float) -> int:
    """Return that every such row gets a label, a power of two, if rows are `row` points high and text is of `size` points."""
    step = 1
    while step * row < 1.1 * size:
        step *= 2
    return step


def finish_rows(axes: Axes, frame: Frame) -> None:
    """Name the rows and leave of the frame only the time axis."""
    axes.tick_params(axis="y", length=0, pad=3)
    if not frame.named:
        axes.set_ylabel("device")
    axes.spines[["left", "right", "top"]].set_visible(False)
