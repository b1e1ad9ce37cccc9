"""How pictures look: their sizes and styles, and figures whose files are the same on every run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from io import BytesIO
from typing import Any, TypedDict

from matplotlib import rc_context, rcParamsDefault
from matplotlib.figure import Figure

from plots.palette import EDGE_COLOUR
from schedir.errors import ArgumentError


class Style(StrEnum):
    """What a picture is for."""

    PAPER = "paper"
    """A column or page of print: 7 inches wide, 8 points, 300 dots per inch."""
    SCREEN = "screen"
    """A web page or slide: 12 inches wide, 11 points, 144 dots per inch."""
    GRAY = "gray"
    """As paper, without colour: grey levels and hatching."""


class LookOptions(TypedDict, total=False):
    """Options that every picture takes; see `Look`."""

    width: float | None
    font_size: float | None
    style: str


WIDER = (14.0, 16.0, 18.0, 20.0)
"""Inches that a picture for the screen may take where it has not been given a width and its labels need one."""
WIDTHS = (1.5, 100.0)
FONT_SIZES = (3.0, 72.0)


@dataclass(frozen=True, slots=True)
class Look:
    """Size and style of a picture, checked."""

    style: Style
    width: float
    """Inches."""
    font_size: float
    """Points: of titles, axes and legend, and the most that labels in bars have."""
    grows: bool = False
    """The width may grow to give labels room: that of a screen's picture if it was not given."""

    @classmethod
    def of(cls, *, width: float | None = None, font_size: float | None = None, style: str = Style.PAPER) -> Look:
        """Fill in the style's own sizes for those that are None; raise ArgumentError for values out of range."""
        if style not in list(Style):
            raise ArgumentError(f"style {style!r} is unknown: use one of {', '.join(Style)}")
        screen = style == Style.SCREEN
        grows = screen and width is None
        width = (12.0 if screen else 7.0) if width is None else width
        font_size = (11.0 if screen else 8.0) if font_size is None else font_size
        _check_range("width", width, WIDTHS, unit="inches")
        _check_range("font_size", font_size, FONT_SIZES, unit="points")
        return cls(Style(style), float(width), float(font_size), grows)

    def wider(self) -> tuple[Look, ...]:
        """Return the same look in the widths that it may grow to."""
        return tuple(replace(self, width=width) for width in WIDER) if self.grows else ()

    @property
    def gray(self) -> bool:
        return self.style is Style.GRAY

    @property
    def idle_colour(self) -> str:
        """Background of a device's row, visible where the device is idle."""
        return "#FFFFFF" if self.gray else "#EFEFEF"

    @property
    def dots_per_inch(self) -> int:
        """Of PNG files, and of bars that are drawn as an image in SVG and PDF files."""
        return 144 if self.style is Style.SCREEN else 300

    def settings(self) -> dict[Any, Any]:
        """Return the matplotlib settings of a picture: its defaults, whatever the user's own are, and ours on top."""
        settings = {key: value for key, value in rcParamsDefault.items() if key.split(".")[0] in _PINNED}
        return settings | {
            "axes.edgecolor": EDGE_COLOUR,
            "axes.linewidth": 0.6,
            "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine has it
            "font.size": self.font_size,
            "hatch.linewidth": 0.4,
            "pdf.fonttype": 42,  # publishers refuse the default, Type 3
            "svg.hashsalt": "schedir",
            "text.parse_math": False,  # a title with two dollars is no formula
        }


_PINNED = frozenset(
    {
        *("axes", "figure", "font", "grid", "hatch", "image", "legend", "lines", "mathtext"),
        *("patch", "path", "pdf", "savefig", "svg", "text", "xtick", "ytick"),
    }
)
"""Groups of matplotlib's settings that decide how a picture looks."""


def _check_range(name: str, value: float, limits: tuple[float, float], *, unit: str) -> None:
    if not (math.isfinite(value) and limits[0] <= value <= limits[1]):
        raise ArgumentError(f"{name} {value:g} is out of range: give {limits[0]:g} to {limits[1]:g} {unit}")


_METADATA: Mapping[str, Mapping[str, None]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {},
}


class Picture(Figure):
    """A matplotlib figure whose files hold no date, no random name and none of the user's own settings.

    Equal pictures give equal bytes with the same matplotlib.
    """

    def __init__(self, look: Look, height: float) -> None:
        """Make an empty figure of the look's width and of `height` inches."""
        self._settings = look.settings()
        super().__init__(figsize=(look.width, height), dpi=look.dots_per_inch, facecolor="white")

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save as matplotlib does; options are those of `Figure.savefig`."""
        suffix = str(options.get("format") or str(fname).rpartition(".")[2]).lower()
        options.setdefault("metadata", dict(_METADATA.get(suffix, {})) or None)
        with rc_context(self._settings):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        """Show the figure in a notebook, where no pyplot does."""
        stream = BytesIO()
        self.savefig(stream, format="png", dpi=144)
        return stream.getvalue()
