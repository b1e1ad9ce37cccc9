"""Memory over time: for what each device holds its bytes, against its limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Unpack

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from plots.held import LIMIT_IN_SIGHT, Held, begin_of, held_memory
from plots.held_curves import class_paint
from plots.paint import Entry
from plots.palette import EDGE_COLOUR, LIMIT_COLOUR
from plots.sheet import LINE, Sheet
from plots.style import Look, LookOptions
from plots.summary import BOLD, check_timelines, held_text, shape_parts
from plots.text import SECONDS, DisplayUnit, text_width, unit_for, wrap
from schedir.errors import ArgumentError
from schedir.timeline.timeline import MemoryClass, MemorySteps, Timeline

PANEL = 5.0
"""Height of a device's panel, in font sizes, where there is room."""
SMALLEST_PANEL = 2.2
"""In font sizes."""
ROOM_FOR_PANELS = 560.0
"""Points that all panels share before they get lower."""
MOST_OUTLINED = 300
"""Classes of devices with more steps than this have no outlines."""
MOST_STEPS = 4000
"""A device with more steps than this is drawn as an image inside SVG and PDF files."""


def memory(timeline: Timeline, *, number_from: int = 0, title: str | None = None, **look: Unpack[LookOptions]) -> Figure:
    """Draw what each device holds over time, stacked by class, with its peak and its limit.

    All devices have one scale. `number_from`, `title` and the options `width`, `font_size`, `style` are those of `gantt`.
    Raises ArgumentError, also for a timeline that carries no bytes.
    """
    check_timelines([timeline])
    chosen = Look.of(**look)
    if timeline.memory is None:
        name = timeline.graph.program.name
        raise ArgumentError(
            f"timeline of {name} carries no bytes: simulate it with costs that have them, or use gantt(memory=True)"
        )
    with rc_context(chosen.settings()):
        return _Chart(chosen, timeline, timeline.memory, held_memory(timeline)).draw(number_from, title)


@dataclass(frozen=True, slots=True, eq=False)
class _Chart:
    """The picture: a panel per device."""

    look: Look
    timeline: Timeline
    memory: tuple[MemorySteps, ...]
    held: Held

    @property
    def largest(self) -> float:
        """Bytes that the fullest device holds."""
        return max(self.held.peak(device) for device in range(len(self.memory)))

    @property
    def unit(self) -> DisplayUnit:
        """Of time."""
        return unit_for(self.timeline.makespan_s, SECONDS)

    def draw(self, number_from: int, title: str | None) -> Figure:
        """Draw the whole picture."""
        size = self.look.font_size
        height = max(SMALLEST_PANEL * size, min(PANEL * size, ROOM_FOR_PANELS / len(self.memory)))
        peaks = [text_width(self.held.show(self.held.peak(device)), BOLD * size) for device in range(len(self.memory))]
        sheet = Sheet(self.look, text_width(f"device {len(self.memory)}", size) + text_width("0000", size) + 12, max(peaks) + 8)
        sheet.skip(4)
        heading = shape_parts(self.timeline) if title is None else [title] if title else []
        sheet.write(wrap(heading, sheet.text_width, BOLD * size), bold=True)
        sheet.write(
            wrap(
                [] if title == "" else [*held_text(self.held, self.largest), f"axes in {self.held.unit.name}"],
                sheet.text_width,
                size,
            )
        )
        for device in range(len(self.memory)):
            sheet.skip(0.3 * size)
            sheet.axes(height, partial(self._draw_device, device, label=f"device {device + number_from}"))
        sheet.skip((2 * LINE + 0.6) * size + 6)
        sheet.legend([Entry(name.replace("_", " "), (class_paint(name, self.look),)) for name in self.held.classes()])
        sheet.skip(4)
        figure = sheet.finish()
        self._finish_time(figure.axes)
        return figure

    def _draw_device(self, device: int, axes: Axes, *, label: str) -> None:
        steps, end = self.memory[device], self.timeline.makespan_s
        # a step lasts to the next one, the last to the end of the run
        time = np.append(np.maximum(steps.time - begin_of(self.timeline), 0.0), end) / self.unit.size
        scale = self.held.unit.size
        upper = np.zeros(len(time))
        chosen = self.held.classes()
        for index, name in enumerate(MemoryClass):
            if name not in chosen or not len(steps.time):
                continue
            amounts = steps.by_class[:, index] / scale
            lower, upper = upper, upper + np.append(amounts, amounts[-1])
            paint = class_paint(name, self.look)
            axes.fill_between(
                time,
                lower,
                upper,
                step="post",
                facecolor=paint.fill,
                hatch=paint.hatch,
                edgecolor=EDGE_COLOUR,
                linewidth=0.3 if len(time) <= MOST_OUTLINED else 0.0,
                rasterized=len(time) > MOST_STEPS,
            )
        self._frame(device, axes, label)

    def _frame(self, device: int, axes: Axes, label: str) -> None:
        """Draw limit, peak and scale."""
        limit, peak, colour = self.held.limit[device], self.held.peak(device), "#000000" if self.look.gray else LIMIT_COLOUR
        scale = self.held.unit.size
        in_sight = [each for each in self.held.limit if each is not None and each <= LIMIT_IN_SIGHT * self.largest]
        axes.set_ylim(0, 1.08 * max([self.largest, *in_sight]) / scale or 1.0)
        if limit is not None:
            axes.axhline(limit / scale, color=colour, linewidth=0.8, linestyle=(0, (4, 2)))
        over = limit is not None and peak > limit
        axes.annotate(
            self.held.show(peak),
            (1, 0.5),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center_baseline",
            color=colour if over else "#000000",
            weight="bold" if over else "normal",
        )
        axes.set_ylabel(label, rotation=0, ha="right", va="center")
        axes.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        axes.tick_params(axis="y", length=2, pad=2)
        axes.spines[["top", "right"]].set_visible(False)

    def _finish_time(self, axes: Sequence[Axes]) -> None:
        for each in axes:
            each.set_xlim(0, self.timeline.makespan_s / self.unit.size or 1.0)
            each.tick_params(axis="x", length=3 if each is axes[-1] else 0, pad=2, labelbottom=each is axes[-1])
        axes[-1].set_xlabel(f"time ({self.unit.name})", labelpad=2)
