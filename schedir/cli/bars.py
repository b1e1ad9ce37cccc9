"""A timeline as bars of characters that fit the terminal: one row per device, one column per piece of time.

    device 0 |F0-F1-F2-F3-.........B0====..B1====..B2====..B3====|
    device 1 |...F0-F1-F2-......B0====F3-B1====..B2====..B3====..|

A bar starts with its letter and micro-batch where they fit; what is too short for a column is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.program import Ints
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


def bar_rows(timeline: Timeline, columns: int) -> list[str]:
    """Return one string of `columns` characters for every device."""
    graph = timeline.graph
    rows = [[IDLE] * columns for _ in range(graph.program.num_devices)]
    recorded = timeline.recorded[: graph.num_compute_tasks]
    tasks = np.flatnonzero(recorded)
    if not len(tasks) or timeline.makespan_s == 0:
        return ["".join(row) for row in rows]
    first = float(np.nanmin(timeline.start))
    scale = columns / timeline.makespan_s
    lows = np.rint((timeline.start[tasks] - first) * scale).astype(int).tolist()
    highs = np.rint((timeline.end[tasks] - first) * scale).astype(int).tolist()
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
