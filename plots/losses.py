"""Losses over mini-batches: every one, their course, and what validation gave; below: its metrics, learning rate, gradient norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy

from plots.paint import Entry, Paint
from plots.palette import lighter
from plots.sheet import LINE, Sheet
from plots.style import Look, LookOptions
from plots.summary import BOLD
from plots.text import text_width, wrap
from schedir.errors import ArgumentError

Numbers = npt.NDArray[np.float64]

MAIN, SIDE = 22.0, 7.0
"""Heights of the panel of losses and of those below it, in font sizes."""
GAP = 1.3
"""Between two panels, in font sizes: the least mark of one and the highest of the next are not read as one number."""
WIDEST_MARK = "0.0000"
"""The longest number at a mark of an axis; names of panels stand left of it."""
LOSS_COLOUR, VALIDATION_COLOUR = "#0072B2", "#D55E00"
LOSS_GREY, VALIDATION_GREY = "#555555", "#000000"
LOGARITHMIC = 20.0
"""From this ratio of the largest loss to the smallest on, losses are drawn on a logarithmic scale."""
MANY_POWERS = 2000.0
"""From this ratio on marks of such a scale are powers of ten alone."""
ROUND = (1, 2, 5, 10)
"""Steps between the marks of an axis, or ten times, a tenth, … as much: rates are mostly such numbers themselves."""
SMOOTHED = 100
"""From so many losses on their running mean is drawn too."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Course:
    """What is drawn, by mini-batch; what is not known is NaN. Raises ArgumentError for columns of other lengths."""

    mini_batch: Numbers
    """(num_rows), increasing."""
    loss: Numbers
    learning_rate: Numbers
    gradient_norm: Numbers
    validated: Numbers
    """(num_evaluations): after how many mini-batches; its loss is to be compared with that of the mini-batch of this number."""
    validation_loss: Numbers
    metrics: Mapping[str, Numbers] = field(default_factory=dict)
    """By name, (num_evaluations)."""

    def __post_init__(self) -> None:
        lengths = {len(column) for column in (self.mini_batch, self.loss, self.learning_rate, self.gradient_norm)}
        evaluated = {len(column) for column in (self.validated, self.validation_loss, *self.metrics.values())}
        if len(lengths) > 1 or len(evaluated) > 1:
            raise ArgumentError(f"columns of a course have {sorted(lengths)} rows: give each a value for every mini-batch")


def losses(course: Course, *, title: str | None = None, **look: Unpack[LookOptions]) -> Figure:
    """Draw a training's course. The options `width`, `font_size`, `style` are those of `gantt`; raises ArgumentError for none."""
    if not len(course.loss):
        raise ArgumentError("there are no losses to draw: train on at least one mini-batch")
    chosen = Look.of(**look)
    with rc_context(chosen.settings()):
        return _Chart(chosen, course).draw(title)


@dataclass(frozen=True, slots=True, eq=False)
class _Chart:
    look: Look
    course: Course

    def draw(self, title: str | None) -> Figure:
        size, course = self.look.font_size, self.course
        names = ["gradient", *(line for name in course.metrics for line in _in_two(name).splitlines())]
        widest = max(text_width(name, size) for name in names)
        sheet = Sheet(self.look, widest + text_width(WIDEST_MARK, size) + 12, 10)
        sheet.skip(4)
        sheet.write(wrap([title] if title else [], sheet.text_width, BOLD * size), bold=True)
        sheet.write(wrap(self._facts(), sheet.text_width, size))
        sheet.skip(0.3 * size)
        sheet.axes(MAIN * size, self._draw_losses)
        for name, values in self.course.metrics.items():
            sheet.skip(GAP * size)
            sheet.axes(SIDE * size, partial(self._draw_metric, label=_in_two(name), values=values))
        panels = (("learning\nrate", course.learning_rate), ("gradient\nnorm", course.gradient_norm))
        for label, values in panels:
            if np.isfinite(values).any():
                sheet.skip(GAP * size)
                sheet.axes(SIDE * size, partial(self._draw_side, label=label, values=values))
        sheet.skip((2 * LINE + 0.6) * size + 6)
        sheet.legend(self._entries())
        sheet.skip(4)
        figure = sheet.finish()
        self._finish_axes(figure)
        return figure

    def _facts(self) -> list[str]:
        course = self.course
        finite = course.loss[np.isfinite(course.loss)]
        facts = [f"{len(course.loss)} mini-batch{'es' if len(course.loss) > 1 else ''}"]
        if len(finite):
            facts.append(f"loss {finite[0]:.4g}" + (f" at first, {finite[-1]:.4g} at last" if len(finite) > 1 else ""))
        if missing := len(course.loss) - len(finite):
            facts.append(
                f"{missing} losses that are not finite are left out" if missing > 1 else "1 that is not finite is left out"
            )
        validation = np.where(np.isfinite(course.validation_loss), course.validation_loss, np.nan)
        if len(validation) and np.isnan(validation).all():
            facts.append("no validation loss is finite")
        elif len(validation):
            least = int(np.nanargmin(validation))
            facts.append(f"validation loss best {course.validation_loss[least]:.4g} after {course.validated[least]:.0f}")
            facts += [f"{name} {values[least]:.4g} there" for name, values in course.metrics.items() if np.isfinite(values[least])]
        return facts

    @property
    def _colours(self) -> tuple[str, str]:
        return (LOSS_GREY, VALIDATION_GREY) if self.look.gray else (LOSS_COLOUR, VALIDATION_COLOUR)

    @property
    def _smoothed(self) -> bool:
        return int(np.isfinite(self.course.loss).sum()) >= SMOOTHED

    @property
    def _window(self) -> int:
        """Mini-batches of the running mean: a fiftieth of all, an odd number."""
        return len(self.course.loss) // 50 | 1

    def _entries(self) -> list[Entry]:
        loss, validation = self._colours
        entries = [Entry("loss of a mini-batch", (Paint(lighter(loss, 0.6) if self._smoothed else loss),))]
        if self._smoothed:
            entries.append(Entry(f"mean of {self._window}", (Paint(loss),)))
        if len(self.course.validated):
            entries.append(Entry("validation", (Paint(validation),)))
        return entries

    def _draw_losses(self, axes: Axes) -> None:
        course, loss = self.course, self._colours[0]
        finite = np.where(np.isfinite(course.loss), course.loss, np.nan)
        dots = {"marker": "o", "markersize": 2.0} if len(finite) <= 50 else {}
        if self._smoothed:
            axes.plot(course.mini_batch, finite, color=lighter(loss, 0.6), linewidth=0.6)
            axes.plot(course.mini_batch, running_mean(finite, self._window), color=loss, linewidth=1.2)
        else:
            axes.plot(course.mini_batch, finite, color=loss, linewidth=0.9, **dots)  # type: ignore[arg-type]  # either of its options
        self._draw_evaluations(axes, course.validation_loss)
        shown = np.concatenate([finite, course.validation_loss])
        shown = shown[np.isfinite(shown)]
        if len(shown) and shown.min() > 0 and shown.max() / shown.min() >= LOGARITHMIC:
            axes.set_yscale("log")
            self._mark_powers(axes, float(shown.max() / shown.min()))
        self._frame(axes, "loss")

    @staticmethod
    def _mark_powers(axes: Axes, ratio: float) -> None:
        """Mark a logarithmic axis at 1, 2, 5, 10, …, over many powers at each of these alone, in plain numbers."""
        many = ratio > MANY_POWERS
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if many else (1.0, 2.0, 5.0), numticks=8 if many else 20))
        # by itself matplotlib would write formulas, whose source is what these pictures show of them
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        axes.yaxis.set_minor_locator(NullLocator())

    def _draw_evaluations(self, axes: Axes, values: Numbers) -> None:
        axes.plot(
            self.course.validated,
            np.where(np.isfinite(values), values, np.nan),
            color=self._colours[1],
            marker="D",
            markersize=3.2,
            linewidth=0.7,
            linestyle=(0, (4, 2)),
        )

    def _draw_metric(self, axes: Axes, *, label: str, values: Numbers) -> None:
        self._draw_evaluations(axes, values)
        axes.margins(y=0.15)
        axes.yaxis.set_major_locator(MaxNLocator(3, steps=ROUND))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        self._frame(axes, label)

    def _draw_side(self, axes: Axes, *, label: str, values: Numbers) -> None:
        colour = self._colours[0]
        # a single point is no line; as large as one of the losses
        dots: dict[str, Any] = {"marker": "o", "markersize": 2.0} if int(np.isfinite(values).sum()) == 1 else {}
        axes.plot(self.course.mini_batch, np.where(np.isfinite(values), values, np.nan), color=colour, linewidth=0.8, **dots)
        # the largest value is not on the panel's upper end
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(2, steps=ROUND))
        self._show_up_to_a_mark(axes)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        self._frame(axes, label)

    @staticmethod
    def _show_up_to_a_mark(axes: Axes) -> None:
        """Let the axis end at a mark of its own, so that the largest value can be read, too."""
        top = axes.get_ylim()[1]
        marks = axes.yaxis.get_major_locator().tick_values(0.0, top)
        axes.set_ylim(top=max(top, *(mark for mark in marks if mark <= top * 1.4)))

    def _frame(self, axes: Axes, label: str) -> None:
        axes.set_ylabel(label, rotation=0, ha="right", va="center")
        axes.tick_params(axis="y", length=2, pad=2)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.4)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)

    def _finish_axes(self, figure: Figure) -> None:
        course, figure_axes = self.course, figure.axes
        # names all in one column: by itself each would stand beside its own marks, which are of different lengths
        beside = -(text_width(WIDEST_MARK, self.look.font_size) + 6)
        first, last = float(course.mini_batch[0]), float(max(course.mini_batch[-1], *course.validated, course.mini_batch[0]))
        room = 0.01 * (last - first) or 0.5
        for axes in figure_axes:
            axes.yaxis.set_label_coords(0, 0.5, offset_copy(axes.transAxes, fig=figure, x=beside, units="points"))
            axes.set_xlim(first - room, last + room)
            axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=ROUND))
            axes.tick_params(axis="x", length=3 if axes is figure_axes[-1] else 0, pad=2, labelbottom=axes is figure_axes[-1])
        figure_axes[-1].set_xlabel("mini-batch", labelpad=2)


def _in_two(name: str) -> str:
    """Return the name of a metric in two lines where it has two words, and no longer than the margin."""
    words = name.replace("_", " ").split()
    half = (len(words) + 1) // 2
    lines = (" ".join(words[:half]), " ".join(words[half:]))
    return "\n".join(line if len(line) <= 12 else f"{line[:11]}…" for line in lines if line)


def _short(value: float) -> str:
    """Return a number on an axis in as few signs as it has: `0.001`, `3e-5`."""
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


def running_mean(values: Numbers, window: int) -> Numbers:
    """Return for each value the mean of `window` values around it, of fewer at the ends; what is not finite counts nowhere."""
    known = np.isfinite(values)
    sums, counts = (np.concatenate([[0.0], np.cumsum(part)]) for part in (np.where(known, values, 0.0), known))
    place = np.arange(len(values))
    low, high = np.maximum(0, place - window // 2), np.minimum(len(values), place + window // 2 + 1)
    number = counts[high] - counts[low]
    return np.where(number > 0, (sums[high] - sums[low]) / np.maximum(number, 1), np.nan)
