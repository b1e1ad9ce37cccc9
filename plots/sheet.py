"""A page that is filled from top to bottom. Every length is in points, so that text and bars keep their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch

from plots.paint import Entry
from plots.style import Look, Picture
from plots.text import text_width

POINTS_PER_INCH = 72.0
LINE = 1.35
"""Height of a line of text, in font sizes."""
HANDLE, HANDLE_GAP, COLUMN_GAP = 1.4, 0.45, 1.5
"""Legend, in font sizes: width of a colour field, its distance to the text, distance between columns."""


class Sheet:
    """Blocks of a picture from top to bottom; `finish` draws them on a page that is as high as they are."""

    def __init__(self, look: Look, left: float, right: float) -> None:
        """Begin a page whose axes leave `left` and `right` points free."""
        self._look, self._left, self._right = look, left, right
        self._width = look.width * POINTS_PER_INCH
        self._blocks: list[tuple[float, Callable[[Picture, float], None] | None]] = []

    @property
    def text_width(self) -> float:
        """Points that a line of text may take."""
        return self._width - self._left - 4

    def skip(self, points: float) -> None:
        """Leave some height empty."""
        self._blocks.append((points, None))

    def write(self, lines: Sequence[str], *, bold: bool = False) -> None:
        """Add lines of text over the axes, each `LINE` font sizes high."""
        for line in lines:
            self._blocks.append((LINE * self._look.font_size, partial(self._write, line=line, bold=bold)))

    def axes(self, height: float, draw: Callable[[Axes], None]) -> None:
        """Add axes of `height` points, to be drawn by `draw`; all axes of a page share x."""
        self._blocks.append((height, partial(self._draw, height=height, draw=draw)))

    def columns(self, height: float, draws: Sequence[Callable[[Axes], None]], gap: float) -> None:
        """Add axes of `height` points side by side, `gap` points apart, each with an x axis of its own."""
        self._blocks.append((height, partial(self._draw_columns, height=height, draws=draws, gap=gap)))

    def column_width(self, count: int, gap: float) -> float:
        """Return the width in points of each of several axes side by side."""
        return (self._width - self._left - self._right - (count - 1) * gap) / count

    def legend(self, entries: Sequence[Entry]) -> None:
        """Add a legend in as many columns as have room; nothing where it has no entry."""
        if not entries:
            return
        columns = _columns(entries, self.text_width, self._look.font_size)
        height = -(-len(entries) // columns) * LINE * self._look.font_size
        self._blocks.append((height, partial(self._legend, entries=entries, columns=columns)))

    def finish(self) -> Picture:
        """Make the page and draw all blocks."""
        height = sum(points for points, _ in self._blocks)
        figure = Picture(self._look, height / POINTS_PER_INCH)
        used = 0.0
        # from the top down, while figures count from the bottom up
        for points, draw in self._blocks:
            used += points
            if draw is not None:
                draw(figure, height - used)
        return figure

    def _write(self, figure: Picture, bottom: float, *, line: str, bold: bool) -> None:
        baseline = (bottom + 0.35 * self._look.font_size) / self._height_of(figure)
        figure.text(self._left / self._width, baseline, line, weight="bold" if bold else "normal", va="baseline")

    def _draw(self, figure: Picture, bottom: float, *, height: float, draw: Callable[[Axes], None]) -> None:
        whole = self._height_of(figure)
        box = (self._left / self._width, bottom / whole, 1 - (self._left + self._right) / self._width, height / whole)
        draw(figure.add_axes(box, sharex=figure.axes[0] if figure.axes else None))

    def _draw_columns(
        self, figure: Picture, bottom: float, *, height: float, draws: Sequence[Callable[[Axes], None]], gap: float
    ) -> None:
        whole, width = self._height_of(figure), self.column_width(len(draws), gap)
        for number, draw in enumerate(draws):
            left = self._left + number * (width + gap)
            draw(figure.add_axes((left / self._width, bottom / whole, width / self._width, height / whole)))

    def _legend(self, figure: Picture, bottom: float, *, entries: Sequence[Entry], columns: int) -> None:
        size = self._look.font_size
        handles: list[Any] = [tuple(_patch(entry, k) for k in range(len(entry.paints))) for entry in entries]
        figure.legend(
            handles,
            [entry.label for entry in entries],
            loc="lower left",
            bbox_to_anchor=(self._left / self._width, bottom / self._height_of(figure)),
            ncols=columns,
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
            fontsize=size,
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            labelspacing=LINE - 1,
            handlelength=HANDLE,
            handleheight=0.8,
            handletextpad=HANDLE_GAP,
            columnspacing=COLUMN_GAP,
        )

    @staticmethod
    def _height_of(figure: Picture) -> float:
        return float(figure.get_figheight()) * POINTS_PER_INCH


def _patch(entry: Entry, number: int) -> Patch:
    paint = entry.paints[number]
    return Patch(facecolor=paint.fill, hatch=paint.hatch or None, edgecolor=paint.edge, linewidth=0.4)


def _columns(entries: Sequence[Entry], width: float, size: float) -> int:
    """Return the most columns that `width` points have room for; matplotlib fills one column after the other."""
    needed = [(HANDLE + HANDLE_GAP + COLUMN_GAP) * size + text_width(entry.label, size) for entry in entries]
    for columns in range(len(entries), 1, -1):
        if sum(float(part.max()) for part in np.array_split(needed, columns)) <= width:
            return columns
    return 1
