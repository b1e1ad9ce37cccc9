"""Pictures for notebooks from arrays: bars on lanes as SVG text, without a plotting library.

    title
    device 0  │F0│F1│F2│F3│  B0  │F4│  B1  │           bars with letters where they fit
    device 1     │F0│F1│F2│  B0  │F3│  B1  │
              0     2     4     6     8  seconds       axis
              ■ forward  ■ backward                    legend of the kinds that occur

Up to MOST_RECTANGLES bars become one rectangle each, with its text as a tooltip. Beyond that every lane is sampled once a
pixel, so that a picture of a million bars stays as small as its screen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.notation.axis import nice_ticks

KIND_COLOURS: Mapping[Kind, str] = {
    Kind.FORWARD: "#56B4E9",
    Kind.BACKWARD: "#E69F00",
    Kind.INPUT_GRAD: "#D55E00",
    Kind.WEIGHT_GRAD: "#CC79A7",
    Kind.OVERLAPPED: "#9E9E9E",
    Kind.RECOMPUTE: "#F0E442",
    Kind.UPDATE: "#000000",
    Kind.PREDICT: "#009E73",
    Kind.TRANSFER: "#5F5F5F",
    Kind.REDUCE: "#0072B2",
    Kind.GATHER: "#0072B2",
    Kind.RELEASE: "#0072B2",
}
"""Colours of Okabe and Ito, which colour-blind readers can tell apart; letters are the second cue."""

MOST_RECTANGLES = 3000
MOST_LANES = 128

_WIDTH = 960
_MARGIN = 8
_CHARACTER = 6.4
"""Pixels of a character of 11 pixels height."""
_ROW, _BAR = 24, 20
_DENSE_ROW, _DENSE_BAR = 10, 9
_FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="11"'
_WHITE_TEXT = frozenset({Kind.UPDATE, Kind.TRANSFER, Kind.REDUCE, Kind.GATHER, Kind.RELEASE, Kind.INPUT_GRAD})
_FORBIDDEN = re.compile("[^\\t\\n\\r\\u0020-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""What XML 1.0 has no sign for (section 2.2): control characters and halves of pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class SvgBars:
    """Bars of one picture, sorted by row, then start."""

    row: Ints
    """Lane of each bar, 0-based from the top."""
    start: Floats
    end: Floats
    kind: Ints
    """A `Kind`, which gives the colour."""
    texts: Callable[[int], tuple[str, ...]]
    """What may stand in bar i, the longest first; the first is its tooltip."""
    lower: Ints | None = None
    """A `Kind` for the lower half of the bar (the backward of an overlapped pair), -1 for none."""


@dataclass(frozen=True, slots=True)
class SvgFrame:
    """What stands around the bars."""

    title: str
    lanes: Sequence[str]
    unit: str
    """What the axis counts: `s`, `position`."""
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where things are, in pixels."""

    left: float
    top: float
    row: int
    bar: int
    first: float
    scale: float
    """Pixels per unit of the axis."""
    num_rows: int

    def x(self, value: float) -> float:
        return self.left + (value - self.first) * self.scale

    @property
    def bottom(self) -> float:
        return self.top + self.num_rows * self.row


def bars_svg(bars: SvgBars, frame: SvgFrame) -> str:
    """Return the picture as SVG text; lanes behind MOST_LANES are left out, which the picture says."""
    layout = _layout(bars, frame)
    kinds = sorted(set(bars.kind.tolist()) | (set() if bars.lower is None else set(bars.lower.tolist()) - {-1}))
    notes = list(frame.notes)
    if len(frame.lanes) > layout.num_rows:
        notes.append(f"{layout.num_rows} of {len(frame.lanes)} lanes are shown")
    height = layout.bottom + 48 + 16 * len(notes)
    size = f'width="{_WIDTH}" height="{height:.0f}" viewBox="0 0 {_WIDTH} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_FONT}>',
        _rectangle(0, 0, (_WIDTH, height), fill="#ffffff"),
        f'<text x="{_MARGIN}" y="18" font-size="13" font-weight="bold">{_as_xml(frame.title)}</text>',
        *_grid(layout, frame, bars),
        *(_bars(bars, layout) if len(bars.row) <= MOST_RECTANGLES else _samples(bars, layout)),
        *_legend(layout, [Kind(kind) for kind in kinds if Kind(kind) is not Kind.OVERLAPPED]),
    ]
    for line, note in enumerate(notes):
        parts.append(f'<text x="{_MARGIN}" y="{layout.bottom + 56 + 16 * line:.0f}" fill="#444444">{_as_xml(note)}</text>')
    return "\n".join([*parts, "</svg>"])


def _as_xml(text: str) -> str:
    """Return text as XML may hold it: a program's name may have any sign, and one that XML forbids spoils the whole picture."""
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))


def _rectangle(x: float, y: float, size: tuple[float, float], *, fill: str, outline: str = "") -> str:
    width, height = size
    stroke = f' stroke="{outline}" stroke-width="0.5"' if outline else ""
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{fill}"{stroke}/>'


def _layout(bars: SvgBars, frame: SvgFrame) -> _Layout:
    num_rows = min(len(frame.lanes), MOST_LANES)
    left = 2 * _MARGIN + _CHARACTER * max(map(len, frame.lanes), default=0)
    first, last = (float(bars.start.min()), float(bars.end.max())) if len(bars.row) else (0.0, 1.0)
    dense = num_rows > 32
    return _Layout(
        left=left,
        top=30,
        row=_DENSE_ROW if dense else _ROW,
        bar=_DENSE_BAR if dense else _BAR,
        first=first,
        scale=(_WIDTH - left - 2 * _MARGIN) / (last - first if last > first else 1.0),
        num_rows=num_rows,
    )


def _grid(layout: _Layout, frame: SvgFrame, bars: SvgBars) -> Iterator[str]:
    """Name the lanes and rule the axis."""
    size = ' font-size="9"' if layout.row == _DENSE_ROW else ""
    for row in range(layout.num_rows):
        y = layout.top + row * layout.row
        yield _rectangle(layout.left, y, (_WIDTH - layout.left - 2 * _MARGIN, layout.bar), fill="#f4f4f4")
        yield f'<text x="{_MARGIN}" y="{y + layout.bar * 0.75:.1f}"{size}>{_as_xml(frame.lanes[row])}</text>'
    last = float(bars.end.max()) if len(bars.row) else 1.0
    for value, label in nice_ticks(layout.first, last):
        x = layout.x(value)
        yield f'<path d="M{x:.1f} {layout.top:.0f}V{layout.bottom + 3:.0f}" stroke="#cccccc" stroke-width="0.5"/>'
        yield f'<text x="{x:.1f}" y="{layout.bottom + 14:.0f}" text-anchor="middle">{label}</text>'
    yield f'<text x="{_WIDTH - _MARGIN}" y="{layout.bottom + 28:.0f}" text-anchor="end">{_as_xml(frame.unit)}</text>'


def _bars(bars: SvgBars, layout: _Layout) -> Iterator[str]:
    """Draw every bar with its text and tooltip."""
    lower = np.full(len(bars.row), -1) if bars.lower is None else bars.lower
    columns = (bars.row.tolist(), bars.start.tolist(), bars.end.tolist(), bars.kind.tolist(), lower.tolist())
    for index, (row, start, end, kind, second) in enumerate(zip(*columns, strict=True)):
        if row >= layout.num_rows:
            continue
        x, y = layout.x(start), layout.top + row * layout.row
        width, texts = max((end - start) * layout.scale, 0.6), bars.texts(index)
        yield f"<g><title>{_as_xml(texts[0])}: {start:.6g} to {end:.6g}</title>"
        yield _rectangle(x, y, (width, layout.bar), fill=KIND_COLOURS[Kind(kind)], outline="#ffffff")
        if second >= 0:
            yield _rectangle(x, y + layout.bar / 2, (width, layout.bar / 2), fill=KIND_COLOURS[Kind(second)])
        yield from _letters(texts, x + width / 2, y + layout.bar * 0.7, width=width, kind=Kind(kind))
        yield "</g>"


def _letters(texts: tuple[str, ...], x: float, y: float, *, width: float, kind: Kind) -> Iterator[str]:
    """Write the longest text that fits, if one does."""
    for text in texts:
        if len(text) * _CHARACTER + 2 <= width:
            fill = "#ffffff" if kind in _WHITE_TEXT else "#000000"
            yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{fill}">{_as_xml(text)}</text>'
            return


def _samples(bars: SvgBars, layout: _Layout) -> Iterator[str]:
    """Draw what lies under the middle of every pixel, runs of one kind as one piece of the kind's path."""
    pixels = int(_WIDTH - layout.left - 2 * _MARGIN)
    middles = layout.first + (np.arange(pixels) + 0.5) / layout.scale
    paths: dict[int, list[str]] = {}
    bounds = np.searchsorted(bars.row, np.arange(layout.num_rows + 1))
    for row in range(layout.num_rows):
        here = slice(int(bounds[row]), int(bounds[row + 1]))
        if here.start == here.stop:
            continue
        # the last bar that starts at or before the middle of the pixel covers it, or, if it is over by then, none does
        at = np.maximum(np.searchsorted(bars.start[here], middles, side="right") - 1, 0)
        covered = (bars.start[here][at] <= middles) & (bars.end[here][at] > middles)
        kind = np.where(covered, bars.kind[here][at], -1)
        # pixels at which another kind begins: between two of them lies one piece
        turns = np.concatenate(([0], np.flatnonzero(np.diff(kind)) + 1, [pixels]))
        for begin, end in zip(turns[:-1].tolist(), turns[1:].tolist(), strict=True):
            if kind[begin] >= 0:
                y = layout.top + row * layout.row
                piece = f"M{layout.left + begin:.1f} {y:.0f}h{end - begin}v{layout.bar}h-{end - begin}z"
                paths.setdefault(int(kind[begin]), []).append(piece)
    for number, pieces in sorted(paths.items()):
        yield f'<path fill="{KIND_COLOURS[Kind(number)]}" d="{"".join(pieces)}"/>'


def _legend(layout: _Layout, kinds: Sequence[Kind]) -> Iterator[str]:
    x, y = layout.left, layout.bottom + 24
    for kind in kinds:
        text = f"{kind.letter} {kind.word.replace('_', ' ')}"
        yield _rectangle(x, y, (11, 11), fill=KIND_COLOURS[kind])
        yield f'<text x="{x + 15:.1f}" y="{y + 10:.0f}">{text}</text>'
        x += 15 + _CHARACTER * len(text) + 14
