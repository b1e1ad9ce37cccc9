"""Predicted against measured times of many configurations, with how far a measurement is from itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from typing import Any, Unpack

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.comparison import COLOURS, GREYS
from plots.style import Look, LookOptions, Picture
from schedir.errors import ArgumentError
from schedir.timeline.percent import signed
from schedir.timeline.timeline import Source

ROW = 1.7
"""Height of a configuration, in font sizes."""
HEAD, FOOT = 3.0, 4.0
"""Above the rows (the legend) and below them (the axis), in font sizes."""
NAMES = 17.5
"""Width of the names, in font sizes."""
ERRORS = 7.0
"""Width of the errors on the right, in font sizes."""
POINTS_PER_INCH = 72.0
BAR = "#BBBBBB"


@dataclass(frozen=True, slots=True)
class Predicted:
    """One configuration."""

    name: str
    _: KW_ONLY
    group: str
    """Those of one group stand together under its name."""
    predicted_s: float
    """Seconds of a step."""
    measured_s: float
    noise: float
    """Fraction of `measured_s` by which the measurement differs from itself: the bar reaches so far to both sides."""


def predictions(rows: Sequence[Predicted], **look: Unpack[LookOptions]) -> Figure:
    """Draw a line per configuration: its measured step with the noise floor as a bar, its predicted step, the error in percent.

    Configurations of one group stand together, in the order in which they are given. Options `width`, `font_size`, `style` as
    for `gantt`. Raises ArgumentError where there is none.
    """
    if not rows:
        raise ArgumentError("no predictions to draw: give at least one")
    chosen = Look.of(**look)
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row.group)]
    lines = len(rows) + len(groups)
    inch = chosen.font_size / POINTS_PER_INCH
    height = (ROW * lines + HEAD + FOOT) * inch
    with rc_context(chosen.settings()):
        figure = Picture(chosen, height)
        low, high = NAMES * inch / chosen.width, 1 - ERRORS * inch / chosen.width
        axes = figure.add_axes((low, FOOT * inch / height, high - low, ROW * lines * inch / height))
        _draw_groups(axes, groups, chosen)
        axes.set(ylim=(lines - 0.3, -0.7), yticks=[], xlabel="milliseconds per mini-batch, steady state")
        axes.set_xlim(left=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, borderaxespad=0.2)
    return figure


def _draw_groups(axes: Axes, groups: Sequence[Sequence[Predicted]], look: Look) -> None:
    line = 0
    axes.text(1.01, line, "error", transform=axes.get_yaxis_transform(), ha="left", va="center", weight="bold")
    for group in groups:
        axes.text(-0.01, line, group[0].group, transform=axes.get_yaxis_transform(), ha="right", va="center", weight="bold")
        for place, row in enumerate(group, start=line + 1):
            _draw_row(axes, row, line=place, look=look)
        line += len(group) + 1


def _draw_row(axes: Axes, row: Predicted, *, line: int, look: Look) -> None:
    named = line == 1
    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
    axes.text(-0.01, line, row.name, ha="right", **beside)
    axes.text(1.01, line, signed(row.predicted_s / row.measured_s - 1), ha="left", **beside)
    measured, predicted = row.measured_s * 1e3, row.predicted_s * 1e3
    axes.axhline(line, color="#EEEEEE", linewidth=0.6, zorder=0)
    paints = GREYS if look.gray else COLOURS
    marks: dict[str, Any] = {
        "linestyle": "none",
        "markersize": 0.55 * look.font_size,
        "markeredgecolor": "black",
        "markeredgewidth": 0.5,
    }
    axes.errorbar(
        measured,
        line,
        xerr=row.noise * measured,
        ecolor=BAR,
        elinewidth=0.6 * look.font_size,
        marker="o",
        color=paints[Source.MEASURED].fill,
        label="measured, ± noise floor" if named else None,
        **marks,
    )
    axes.plot(predicted, line, marker="D", color=paints[Source.SIMULATED].fill, label="predicted" if named else None, **marks)
