"""Colours and grey patterns: of kinds of work, of stages and mini-batches, and of what memory is held for.

The colours are those of Okabe and Ito (Color Universal Design, 2008) and greys. tests/plots/test_palette.py simulates
colour-blind readers (Machado et al. 2009) and holds how far apart the colours stay for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from schedir.ir.action import Kind
from schedir.ir.notation import svg
from schedir.timeline.timeline import MemoryClass

KIND_COLOURS: Mapping[Kind, str] = {kind: colour for kind, colour in svg.KIND_COLOURS.items() if kind is not Kind.OVERLAPPED}
"""Fill of each kind's bars, the same as in notebook pictures. Overlapped pairs are drawn as their two halves; collectives share a
colour, letters differ."""

KIND_GREYS: Mapping[Kind, tuple[str, str]] = {
    Kind.FORWARD: ("#D0D0D0", ""),
    Kind.BACKWARD: ("#8C8C8C", ""),
    Kind.INPUT_GRAD: ("#8C8C8C", "////"),
    Kind.WEIGHT_GRAD: ("#D0D0D0", "\\\\\\\\"),
    Kind.RECOMPUTE: ("#FFFFFF", "...."),
    Kind.UPDATE: ("#000000", ""),
    Kind.PREDICT: ("#FFFFFF", "xxxx"),
    Kind.TRANSFER: ("#555555", ""),
    Kind.REDUCE: ("#FFFFFF", "----"),
    Kind.GATHER: ("#FFFFFF", "||||"),
    Kind.RELEASE: ("#FFFFFF", "++++"),
}
"""Fill and hatching of each kind's bars where there is no colour."""

TURN_HATCH = "---"
"""Added to the hatching of every second mini-batch where there is no colour: a lighter B would be a darker F."""

GROUP_COLOURS = (
    *("#56B4E9", "#E69F00", "#009E73", "#D55E00", "#0072B2", "#CC79A7", "#F0E442"),
    *("#602000", "#000080", "#8020E0", "#602060", "#80C060"),
)
"""Colours of stages, mini-batches or devices, in turn: those of Okabe and Ito, then what is farthest from them for all eyes."""

GROUP_HATCHES = ("////", "....", "\\\\\\\\", "xxxx", "----", "oooo", "||||", "++++", "**", "//..", "xx--", "--..")
"""What stands for `GROUP_COLOURS` where there is no colour; there the grey says the kind: see `GROUP_KIND_GREYS`."""

GROUP_KIND_GREYS: Mapping[Kind, str] = {
    Kind.FORWARD: "#E2E2E2",
    Kind.RECOMPUTE: "#C6C6C6",
    Kind.WEIGHT_GRAD: "#ABABAB",
    Kind.BACKWARD: "#919191",
    Kind.INPUT_GRAD: "#787878",
}
"""Greys of kinds where hatching says the stage or mini-batch; idle time and predictions are white."""

NEUTRAL: Mapping[Kind, str] = {
    Kind.UPDATE: "#000000",
    Kind.PREDICT: "#FFFFFF",
    Kind.TRANSFER: "#5F5F5F",
    Kind.REDUCE: "#4A4A4A",
    Kind.GATHER: "#4A4A4A",
    Kind.RELEASE: "#4A4A4A",
}
"""What belongs to no one micro-batch, where colours say the stage or mini-batch; what is white is hatched."""

NEUTRAL_HATCH = "xxxx"

EDGE_COLOUR = "#333333"
"""Outlines and hatching."""

MEMORY_COLOURS: Mapping[MemoryClass, str] = {
    MemoryClass.WEIGHTS: "#0072B2",
    MemoryClass.VERSIONS: "#56B4E9",
    MemoryClass.GRADIENTS: "#D55E00",
    MemoryClass.OPTIMIZER: "#5F5F5F",
    MemoryClass.ACTIVATIONS: "#E69F00",
    MemoryClass.RECOMPUTED: "#F0E442",
    MemoryClass.TRANSFER_BUFFERS: "#009E73",
    MemoryClass.WORKSPACE: "#CC79A7",
}
"""Fill of each class of memory."""

MEMORY_GREYS: Mapping[MemoryClass, tuple[str, str]] = {
    MemoryClass.WEIGHTS: ("#787878", ""),
    MemoryClass.VERSIONS: ("#FFFFFF", "////"),
    MemoryClass.GRADIENTS: ("#AAAAAA", ""),
    MemoryClass.OPTIMIZER: ("#FFFFFF", "...."),
    MemoryClass.ACTIVATIONS: ("#DADADA", ""),
    MemoryClass.RECOMPUTED: ("#FFFFFF", "xxxx"),
    MemoryClass.TRANSFER_BUFFERS: ("#FFFFFF", "----"),
    MemoryClass.WORKSPACE: ("#FFFFFF", "\\\\\\\\"),
}
"""Fill and hatching of each class of memory where there is no colour."""

LIMIT_COLOUR = "#D55E00"
"""Limits, and what exceeds them; black where there is no colour."""


def lighter(colour: str, share: float) -> str:
    """Return `#RRGGBB` mixed with white; `share` is the part of white, 0 to 1."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)


def ink(fill: str) -> str:
    """Return black or white, whichever reads better on a fill `#RRGGBB` (relative luminance of WCAG 2.1)."""
    red, green, blue = (_linear(int(fill[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#FFFFFF"


def _linear(level: float) -> float:
    return level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4
