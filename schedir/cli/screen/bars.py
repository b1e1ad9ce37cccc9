"""Timelines as bars of characters that fit the terminal: one row per device, one column per piece of time.

    device 0 |F0-F1-F2-F3-.........B0====..B1====..B2====..B3====|
    device 1 |...F0-F1-F2-......B0====F3-B1====..B2====..B3====..|

A bar starts with its letter and micro-batch, so a forward or backward is never squeezed below the columns that these take: what
does not fit then is cut behind the last whole mini-batch that does, or else at the edge, and a line says how to see all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.cli.screen.screen import counted, seconds, terminal_width
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.timeline.timeline import Timeline

FILL = {
    Kind.FORWARD: "-",
    Kind.BACKWARD: "=",
    Kind.INPUT_GRAD: "=",
    Kind.WEIGHT_GRAD: "+",
    Kind.OVERLAPPED: "%",
    Kind.RECOMPUTE: "~",
    Kind.UPDATE: "u",
    Kind.PREDICT: "p",
}
"""What a bar of this kind is filled with."""

IDLE = "."

_LABELLED = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.OVERLAPPED)
"""Kinds whose bars should have room for their label."""

LEAST = 2
"""Columns of the shortest such bar (the median one of its kind)."""

SPREAD = 50
"""Kinds that last less than this share (1/50) of the longest kind do not set the scale: all else would be drawn far too wide."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Which part of several timelines is drawn on one time axis, from their first start on."""

    columns: int
    """Characters that the part takes."""
    seconds: float
    """What is drawn."""
    whole: float
    """What there is."""
    mini_batches: int
    """How many end in what is drawn, of the timeline with the fewest."""
    needed: int
    """Characters that all of it would take."""

    @property
    def scale(self) -> float:
        """Characters per second."""
        return self.columns / self.seconds if self.seconds > 0 else 0.0

    def of(self, timeline: Timeline) -> int:
        """Return the characters that a timeline takes in this window."""
        return max(1, round(min(timeline.makespan_s, self.seconds) * self.scale)) if self.scale else self.columns

    def note(self, margin: int) -> list[str]:
        """Return the line that says what is cut and how to see all of it; none where nothing is."""
        if self.seconds >= self.whole:
            return []
        ends = f", {counted(self.mini_batches, 'whole mini-batch')}" if self.mini_batches else ""
        part = f"0 to {seconds(self.seconds)} of {seconds(self.whole)}{ends}"
        return [f"cut: {part}; to see all of it, type COLUMNS={self.needed + margin} in front of the command"]


def window_of(timelines: Sequence[Timeline], margin: int) -> TimeWindow:
    """Choose what is drawn of timelines that stand below each other, `margin` characters of every line taken already."""
    columns = max(terminal_width() - margin, 10)
    whole = max(timeline.makespan_s for timeline in timelines)
    medians = [time for timeline in timelines for time in _medians(timeline)]
    if not medians or (longest := max(medians)) <= 0:
        return TimeWindow(columns, whole, whole, 0, columns)
    shortest = min(time for time in medians if time >= longest / SPREAD)
    needed = _needed(LEAST, whole, shortest)
    if needed <= columns:
        return TimeWindow(columns, whole, whole, 0, columns)
    label = 1 + max(len(str(_last_started(timeline, columns / LEAST * shortest))) for timeline in timelines)
    fitting = columns / label * shortest
    ends = [_mini_batch_ends(timeline) for timeline in timelines]
    last = max((time for each in ends for time in each.tolist() if time <= fitting), default=fitting)
    count = min(int((each <= last).sum()) for each in ends)
    return TimeWindow(columns, last, whole, count, _needed(label, whole, shortest))


def _needed(label: int, whole: float, shortest: float) -> int:
    return int(np.ceil(label * whole / shortest))


def _medians(timeline: Timeline) -> list[float]:
    """Return the median seconds of each kind of work that should be labelled and takes time."""
    lasting = timeline.end > timeline.start
    chosen = [lasting & (timeline.graph.kind == kind) for kind in _LABELLED]
    return [float(np.median((timeline.end - timeline.start)[each])) for each in chosen if each.any()]


def _last_started(timeline: Timeline, time: float) -> int:
    """Return the largest micro-batch that starts in the first `time` seconds."""
    compute = slice(0, timeline.graph.num_compute_tasks)
    early = timeline.start[compute] - np.nanmin(timeline.start) < time
    return int(timeline.graph.micro_batch[compute][early].max(initial=0))


def _mini_batch_ends(timeline: Timeline) -> Ints:
    """Return when the last task of every mini-batch ends, in seconds from the first start."""
    program = timeline.graph.program
    compute = slice(0, timeline.graph.num_compute_tasks)
    end = np.nan_to_num(timeline.end[compute] - np.nanmin(timeline.start))
    ends = np.zeros(program.num_mini_batches)
    np.maximum.at(ends, timeline.graph.micro_batch[compute] // program.num_micro_batches, end)
    return np.maximum.accumulate(ends)


def bar_rows(timeline: Timeline, window: TimeWindow) -> list[str]:
    """Return one string for every device, as long as the timeline is in the window."""
    graph, columns, scale = timeline.graph, window.of(timeline), window.scale
    rows = [[IDLE] * columns for _ in range(graph.program.num_devices)]
    recorded = timeline.recorded[: graph.num_compute_tasks]
    tasks = np.flatnonzero(recorded)
    if not len(tasks) or not scale:
        return ["".join(row) for row in rows]
    first = float(np.nanmin(timeline.start))
    lows = np.rint((timeline.start[tasks] - first) * scale).astype(int).tolist()
    highs = np.minimum(np.rint((timeline.end[tasks] - first) * scale), columns).astype(int).tolist()
    for task, low, high in zip(tasks.tolist(), lows, highs, strict=True):
        if high > low:
            kind = Kind(graph.kind[task])
            rows[graph.device[task]][low:high] = _bar(kind, int(graph.micro_batch[task]), high - low)
    return ["".join(row) for row in rows]


def _bar(kind: Kind, micro_batch: int, columns: int) -> str:
    label = f"{kind.letter}{micro_batch}"
    if len(label) > columns:
        label = kind.letter
    return label.ljust(columns, FILL[kind])


def legend(timelines: Sequence[Timeline]) -> str:
    """Return what the characters of the kinds that take time stand for."""
    present = {Kind(kind) for timeline in timelines for kind in np.unique(_lasting(timeline)).tolist()}
    return "  ".join(
        [*(f"{kind.letter}{FILL[kind]} {kind.word.replace('_', ' ')}" for kind in FILL if kind in present), f"{IDLE} idle"]
    )


def _lasting(timeline: Timeline) -> Ints:
    """Return the kinds of the compute tasks that take time."""
    compute = slice(0, timeline.graph.num_compute_tasks)
    return timeline.graph.kind[compute][timeline.end[compute] > timeline.start[compute]]
