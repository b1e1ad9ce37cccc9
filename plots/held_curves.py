"""What each device holds over time, as curves below a Gantt panel: stacked by class of memory, in a row per device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection

from plots.held import LIMIT_IN_SIGHT, Held
from plots.paint import Entry, Paint
from plots.palette import EDGE_COLOUR, LIMIT_COLOUR, MEMORY_COLOURS, MEMORY_GREYS
from plots.panel import MOST_VECTORS, Frame, Panel, device_label, finish_rows, label_step
from plots.style import Look
from schedir.ir.arrays import Floats
from schedir.timeline.timeline import MemoryClass

HELD_PART = 0.84
"""Part of a row's height that the largest amount of memory takes."""
SAME_TIME = 1e-9
"""Steps that are closer than this part of the makespan are at one time."""
COUNTED, COUNTED_GREY = Paint("#A6CBE3"), Paint("#BBBBBB")
"""What numbers of activations are filled with: these are of no class."""


def class_paint(name: MemoryClass, look: Look) -> Paint:
    """Return how a class of memory is filled."""
    fill, hatch = MEMORY_GREYS[name] if look.gray else (MEMORY_COLOURS[name], "")
    return Paint(fill, hatch)


def held_entries(panels: Sequence[Held], look: Look) -> list[Entry]:
    """Return the legend of what is held; every entry says that it is memory, since bars have some of the same colours."""
    classes = {name for held in panels for name in held.classes()}
    entries = [Entry(f"memory: {name.replace('_', ' ')}", (class_paint(name, look),)) for name in MemoryClass if name in classes]
    counted = next((held.name for held in panels if held.by_class is None), None)
    return [*entries, *([] if counted is None else [Entry(counted, (_counted(look),))])]


def _counted(look: Look) -> Paint:
    return COUNTED_GREY if look.gray else COUNTED


def draw_held(panel: Panel, frame: Frame, axes: Axes, *, largest: float) -> None:
    """Draw what each device holds as a curve in its row, to one scale, with its peak beside it and its limit dashed.

    `largest` is the most that any device holds in any panel that counts the same: all of these have one scale.
    """
    held = panel.held
    assert held is not None
    drawn = {device: limit for device, limit in enumerate(held.limit) if limit is not None and limit <= LIMIT_IN_SIGHT * largest}
    scale = HELD_PART / (max(largest, *drawn.values()) if drawn else largest or 1.0)
    end, unit = panel.timeline.makespan_s, frame.unit.size
    image = sum(map(len, held.time)) > MOST_VECTORS
    for paint, lower, upper in _layers(held, frame.look):
        curves = [
            _outline(columns, end=end, unit=unit, scale=scale, base=device + 1)
            for device, columns in enumerate(zip(held.time, lower, upper, strict=True))
        ]
        axes.add_collection(
            PolyCollection(
                curves,
                facecolors=paint.fill,
                edgecolors=EDGE_COLOUR,
                linewidths=0.3,
                hatch=paint.hatch or None,
                rasterized=image,
            ),
            autolim=False,
        )
    heights = [device + 1 - limit * scale for device, limit in drawn.items()]
    lines = [((0, height), (end / unit, height)) for height in heights]
    axes.add_collection(
        LineCollection(lines, colors=_limit_colour(frame.look), linewidths=0.8, linestyles=[(0, (4, 2))]), autolim=False
    )
    axes.set_ylim(panel.num_devices, 0)
    _label_held(panel, frame, axes)


def _layers(held: Held, look: Look) -> Iterator[tuple[Paint, list[Floats], list[Floats]]]:
    """Yield what is drawn from bottom to top: its paint, and of every device the amounts below it and with it."""
    lower = [np.zeros(len(amount)) for amount in held.amount]
    if held.by_class is None:
        yield _counted(look), lower, list(held.amount)
        return
    for index, name in enumerate(MemoryClass):
        if name in held.classes():
            upper = [below + part[:, index] for below, part in zip(lower, held.by_class, strict=True)]
            yield class_paint(name, look), lower, upper
            lower = upper


def _limit_colour(look: Look) -> str:
    return "#000000" if look.gray else LIMIT_COLOUR


def _outline(columns: tuple[Floats, Floats, Floats], *, end: float, unit: float, scale: float, base: int) -> Floats:
    """Return the corners (num_corners, 2) of what lies between two step curves, in units of time and in rows down from the top.

    The columns are time, lower and upper curve. Both begin with the first step and last to `end`; the upper one is followed
    forward, the lower one back.
    """
    time, lower, upper = columns
    last = np.append(np.diff(time) > SAME_TIME * end, True)[: len(time)]  # of steps at one time only the last is seen
    time, lower, upper = time[last], lower[last], upper[last]
    x = np.append(np.repeat(time, 2)[1:], end) if len(time) else np.zeros(0)
    y = np.concatenate((np.repeat(upper, 2), np.repeat(lower, 2)[::-1]))
    return np.column_stack((np.concatenate((x, x[::-1])) / unit, base - y * scale))


def _label_held(panel: Panel, frame: Frame, axes: Axes) -> None:
    held = panel.held
    assert held is not None
    size = frame.look.font_size
    devices = range(0, panel.num_devices, label_step(size, frame.row))
    axes.set_yticks(
        [device + 0.5 for device in devices], [device_label(device + frame.number_from, named=frame.named) for device in devices]
    )
    for device in devices:
        limit = held.limit[device]
        over = limit is not None and held.peak(device) > limit
        axes.annotate(
            held.show(held.peak(device)),
            (1, device + 0.5),
            color=_limit_colour(frame.look) if over else "#000000",
            weight="bold" if over else "normal",
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center_baseline",
            annotation_clip=False,
        )
    finish_rows(axes, frame)
