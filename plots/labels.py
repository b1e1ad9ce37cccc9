"""Labels in bars: `F3`, or `2F3` where devices host several stages that no colour names; what has no room stays empty.

All pictures write labels in this one form. One size serves all panels of a picture: the largest that all, or at least most,
bars of work on a micro-batch have room for, and if none is, the smallest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from plots.bars import Bars
from plots.paint import MICRO_BATCH_KINDS, Painting
from plots.palette import ink
from plots.text import text_width
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints

SMALLEST = 4.5
"""Points: labels are not set smaller than this."""
ENOUGH = (1.0, 0.9)
"""Share of the bars for micro-batches that must have room for a form and size: the first if there is such, else the second."""
SIZES = (1.0, 0.85, 0.7, 0.6)
"""Sizes that are tried, in font sizes."""
PADDING = 0.08
"""Room left free on each side of a label, in font sizes."""
LINE_HEIGHT = 1.0
"""Height that a label needs, in font sizes: digits and capitals have no descenders."""
UNLABELLED = (Kind.TRANSFER, Kind.REDUCE, Kind.GATHER, Kind.RELEASE)


@dataclass(frozen=True, slots=True, eq=False)
class LabelRoom:
    """The bars of one panel that may be labelled, with their sizes in print."""

    bars: Bars
    stages: bool
    """Labels name the stage in front, `2F0`: the panel's devices host several, and no colour says which."""
    index: Ints
    """Which bars."""
    width: Floats
    """Points, of each."""
    height: Floats
    """Points, of each."""
    first_micro_batch: int = 0
    """Number of the timeline's first micro-batch in the run that it is a part of."""


@dataclass(frozen=True, slots=True)
class LabelForm:
    """How labels are written."""

    number_from: int
    size: float
    """Points."""


def measure(bars: Bars, points_per_second: float, points_per_row: float, *, stages: bool, first_micro_batch: int = 0) -> LabelRoom:
    """Return the bars that are large enough for any label, with their sizes in points; `stages`: labels name the stage."""
    width = (bars.right - bars.left) * points_per_second
    height = (bars.bottom - bars.top) * points_per_row
    fits = (width >= text_width("0", SMALLEST)) & (height >= SMALLEST * LINE_HEIGHT) & ~np.isin(bars.kind, UNLABELLED)
    index = np.flatnonzero(fits)
    return LabelRoom(bars, stages, index, width[index], height[index], first_micro_batch)


def choose_form(rooms: Sequence[LabelRoom], font_size: float, number_from: int) -> tuple[LabelForm, bool]:
    """Return the largest size of labels that enough of all bars for micro-batches have room for, and whether there is one."""
    sizes = [share * font_size for share in SIZES if share * font_size >= SMALLEST] or [SMALLEST]
    forms = [LabelForm(number_from, size) for size in [*(size for size in sizes if size > SMALLEST), SMALLEST]]
    total = sum(int(_numbered(room.bars.kind).sum()) for room in rooms)
    fitting = [sum(int((_numbered(room.bars.kind[room.index]) & _fits(room, form)).sum()) for room in rooms) for form in forms]
    # sizes fall: the first that has room is the largest
    for enough in ENOUGH:
        for form, count in zip(forms, fitting, strict=True):
            if total and count >= enough * total:
                return form, True
    return forms[-1], not total


def _numbered(kind: Ints) -> Ints:
    return np.isin(kind, list(MICRO_BATCH_KINDS))


def _fits(room: LabelRoom, form: LabelForm) -> Ints:
    width = np.array([text_width(text, form.size) for text in _texts(room, form)])
    return (width + 2 * PADDING * form.size <= room.width) & (room.height >= LINE_HEIGHT * form.size)


def _texts(room: LabelRoom, form: LabelForm) -> Iterator[str]:
    bars = room.bars
    columns = (column[room.index].tolist() for column in (bars.kind, bars.stage, bars.micro_batch))
    for value, stage, micro_batch in zip(*columns, strict=True):
        kind = Kind(value)
        if kind not in MICRO_BATCH_KINDS:
            yield kind.letter
            continue
        label = f"{kind.letter}{micro_batch + room.first_micro_batch + form.number_from}"
        yield f"{stage + form.number_from}{label}" if room.stages else label


def write_labels(axes: Axes, room: LabelRoom, form: LabelForm, *, painting: Painting, unit: float) -> None:
    """Write a label into every bar that has room for it; the time axis counts units of `unit` seconds."""
    bars, fits = room.bars, _fits(room, form)
    for text, bar, room_enough in zip(_texts(room, form), room.index.tolist(), fits.tolist(), strict=True):
        if not room_enough:
            continue
        paint = painting.paints[painting.index[bar]]
        label = axes.text(
            float(bars.left[bar] + bars.right[bar]) / 2 / unit,
            float(bars.top[bar] + bars.bottom[bar]) / 2,
            text,
            fontsize=form.size,
            color=ink(paint.fill),
            ha="center",
            va="center_baseline",
        )
        label.set_in_layout(False)
        if paint.hatch:
            label.set_bbox({"facecolor": paint.fill, "edgecolor": "none", "pad": 0.8})
