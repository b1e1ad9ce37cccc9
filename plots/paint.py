"""Which bar gets which fill, and what the legend says about it.

By kind, each kind of work has its colour, and mini-batches that follow each other differ in shade, without colour in
hatching: what is lighter would be taken for another kind. By stage or by
mini-batch, each of these has its colour, and kinds differ in shade and hatching; without colour each has its hatching, and
kinds differ in their grey. What belongs to no micro-batch (updates, predictions) is black or grey then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

from plots.bars import Bars
from plots.palette import (
    EDGE_COLOUR,
    GROUP_COLOURS,
    GROUP_HATCHES,
    GROUP_KIND_GREYS,
    KIND_COLOURS,
    KIND_GREYS,
    NEUTRAL,
    NEUTRAL_HATCH,
    TURN_HATCH,
    lighter,
)
from plots.style import Look
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints


class ColorBy(StrEnum):
    """What the colour of a bar says."""

    KIND = "kind"
    STAGE = "stage"
    MINI_BATCH = "mini-batch"


@dataclass(frozen=True, slots=True)
class Paint:
    """How a bar is filled."""

    fill: str
    """`#RRGGBB`."""
    hatch: str = ""
    edge: str = EDGE_COLOUR
    line: bool = False
    """It is outlined in any size, since it may be as thin as a line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the legend."""

    label: str
    paints: tuple[Paint, ...]
    """Shown side by side."""


@dataclass(frozen=True, slots=True, eq=False)
class Painting:
    """The fills of a panel's bars."""

    paints: tuple[Paint, ...]
    index: Ints
    """Which paint each bar has."""
    kinds: tuple[Kind, ...]
    """Kinds of work that occur, in the order of the legend."""
    groups: tuple[int, ...]
    """Stages or mini-batches that occur; empty if colours mean kinds."""
    shaded: bool
    """Mini-batches that follow each other differ in shade."""


LEGEND_ORDER = (
    Kind.FORWARD,
    Kind.BACKWARD,
    Kind.INPUT_GRAD,
    Kind.WEIGHT_GRAD,
    Kind.RECOMPUTE,
    Kind.PREDICT,
    Kind.UPDATE,
    Kind.TRANSFER,
    Kind.REDUCE,
    Kind.GATHER,
    Kind.RELEASE,
)
MICRO_BATCH_KINDS = frozenset(LEGEND_ORDER[:5])
"""Kinds that work on one micro-batch; only these are shaded, coloured by stage or mini-batch, and numbered."""

SHADE = 0.5
"""Share of white in the colours of every second mini-batch."""
MOST_GROUPS_NAMED = 12
"""Above this many stages or mini-batches the legend names the first and the last."""

GROUP_KINDS: Mapping[Kind, tuple[float, str]] = {
    Kind.FORWARD: (0.55, ""),
    Kind.BACKWARD: (0.0, ""),
    Kind.INPUT_GRAD: (0.0, "////"),
    Kind.WEIGHT_GRAD: (0.3, "\\\\\\\\"),
    Kind.RECOMPUTE: (0.75, "...."),
}
"""Share of white in the group's colour, and hatching, where colours mean stages or mini-batches."""
PLAIN = "#8C8C8C"
"""Stands for any group's colour in the legend's entries for kinds."""


def paint_bars(bars: Bars, look: Look, color_by: ColorBy, *, num_micro_batches: int) -> Painting:
    """Choose a paint for every bar; `num_micro_batches` is that of a mini-batch."""
    mini_batch = bars.micro_batch // num_micro_batches
    work = np.isin(bars.kind, list(MICRO_BATCH_KINDS))
    shaded = color_by is ColorBy.KIND and len(np.unique(mini_batch[work])) > 1
    if color_by is ColorBy.KIND:
        group = np.where(work & shaded, mini_batch % 2, 0)
    else:
        group = np.where(work, bars.stage if color_by is ColorBy.STAGE else mini_batch, 0)
    # one paint for every (kind, group) that occurs: all bars of one paint are drawn in one call
    keys, index = np.unique(group.astype(np.int64) * len(Kind) + bars.kind, return_inverse=True)
    pairs = [(Kind(key % len(Kind)), key // len(Kind)) for key in keys.tolist()]
    grouped = color_by is not ColorBy.KIND
    palette = group_colours(int(group.max(initial=0)) + 1, color_by) if grouped else ()
    found = {kind for kind, _ in pairs}
    return Painting(
        paints=tuple(_paint(kind, look, number, palette=palette) for kind, number in pairs),
        index=index.reshape(-1),
        kinds=tuple(kind for kind in LEGEND_ORDER if kind in found),
        groups=tuple(sorted({number for kind, number in pairs if kind in MICRO_BATCH_KINDS})) if grouped else (),
        shaded=shaded,
    )


def _paint(kind: Kind, look: Look, group: int, *, palette: Sequence[str] = ()) -> Paint:
    """Return the paint of a kind in one of two shades or, with a palette, in a group."""
    if palette and kind in MICRO_BATCH_KINDS:
        return _group_paint(kind, look, group, palette=palette)
    fill, hatch = _neutral(kind) if palette else KIND_GREYS[kind] if look.gray else (KIND_COLOURS[kind], "")
    if kind is Kind.TRANSFER:
        return Paint(fill, hatch, edge=fill, line=True)
    return Paint(fill, hatch + TURN_HATCH * group) if look.gray else Paint(lighter(fill, SHADE * group), hatch)


def _neutral(kind: Kind) -> tuple[str, str]:
    """Return fill and hatching of what belongs to no group."""
    return NEUTRAL[kind], NEUTRAL_HATCH if kind is Kind.PREDICT else ""


def _group_paint(kind: Kind, look: Look, group: int, *, palette: Sequence[str]) -> Paint:
    """Say the group by colour, the kind by shade and hatching; without colour the group by hatching, the kind by its grey."""
    if look.gray:
        return Paint(GROUP_KIND_GREYS[kind], GROUP_HATCHES[group % len(GROUP_HATCHES)])
    share, hatch = GROUP_KINDS[kind]
    return Paint(lighter(palette[group % len(palette)], share), hatch)


def group_colours(count: int, color_by: ColorBy) -> tuple[str, ...]:
    """Return colours for `count` stages, or for mini-batches, which use those there are again and again."""
    if count <= len(GROUP_COLOURS) or color_by is ColorBy.MINI_BATCH:
        return GROUP_COLOURS
    ramp = matplotlib.colormaps["cividis"]
    return tuple(to_hex(ramp(0.1 + 0.9 * k / (count - 1))).upper() for k in range(count))


def legend_entries(paintings: Sequence[Painting], look: Look, color_by: ColorBy, *, number_from: int) -> list[Entry]:
    """Return the legend of all panels together: kinds, stages or mini-batches, and what shades and gaps mean."""
    found = {kind for painting in paintings for kind in painting.kinds}
    groups = sorted({group for painting in paintings for group in painting.groups})
    shaded = any(painting.shaded for painting in paintings)
    entries = [_kind_entry(kind, look, grouped=bool(groups), shaded=shaded) for kind in LEGEND_ORDER if kind in found]
    if shaded:
        shades = tuple(_paint(Kind.FORWARD, look, shade) for shade in (0, 1))
        entries.append(Entry("shades: mini-batches alternate", shades))
    if groups:
        palette = group_colours(groups[-1] + 1, color_by)
        paints = {group: _legend_paint(look, group, palette) for group in groups}
        count = len(GROUP_HATCHES) if look.gray else len(palette)
        entries.extend(_group_entries(paints, count, word=color_by.value, number_from=number_from))
    return [*entries, Entry("idle", (Paint(look.idle_colour),))]


def _kind_entry(kind: Kind, look: Look, *, grouped: bool, shaded: bool) -> Entry:
    """Return a kind's entry; where mini-batches differ in shade, with both of its shades, so that no bar's colour is missing."""
    word = kind.word.replace("_", " ").replace("grad", "gradient")
    paint = _paint(kind, look, 0, palette=(PLAIN,) if grouped else ())
    if grouped and look.gray and kind in MICRO_BATCH_KINDS:
        paint = Paint(paint.fill)  # hatching is what says the group
    both = (paint, _paint(kind, look, 1)) if shaded and kind in MICRO_BATCH_KINDS else (paint,)
    return Entry(f"{kind.letter} {word}", both)


def _legend_paint(look: Look, group: int, palette: Sequence[str]) -> Paint:
    """Return the paint that stands for a group, whatever the kind."""
    return _group_paint(Kind.FORWARD, look, group, palette=palette) if look.gray else Paint(palette[group % len(palette)])


def _group_entries(paints: Mapping[int, Paint], num_paints: int, *, word: str, number_from: int) -> list[Entry]:
    """Return an entry for each group, or one for all where they are many."""
    if len(paints) <= MOST_GROUPS_NAMED:
        return [Entry(f"{word} {group + number_from}", (paint,)) for group, paint in paints.items()]
    groups = list(paints)
    chosen = groups[:num_paints][:: max(1, min(len(groups), num_paints) // 6)]
    plural = f"{word}s" if word == "stage" else f"{word}es"
    return [Entry(f"{plural} {groups[0] + number_from}–{groups[-1] + number_from}", tuple(paints[group] for group in chosen))]
