"""Bars of a timeline: where the spans of all tasks stand in a panel, as arrays.

A panel has one row per device and, where asked for, thin rows for links and reductions: a link's stands under the upper
one of its two devices, so that for neighbours it lies between them. Heights are in units of a device's row, counted downwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import Lane, LaneKind
from schedir.timeline.timeline import Timeline

LINK_ROW = 0.5
"""Height of a link's row, in rows of devices."""
MARGIN = 0.07
"""Empty part of a row above and below its bars."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a panel."""

    lane: int
    """Index in the graph's lanes."""
    top: float
    height: float
    device: bool
    """The lane is a device's compute lane."""


def place_rows(graph: TaskGraph, *, links: bool) -> tuple[Row, ...]:
    """Return the rows of a panel from top to bottom: devices, and with `links` also links and reductions."""
    rows: list[Row] = []
    top = 0.0
    for index, lane in sorted(enumerate(graph.lanes), key=_place):
        device = lane.kind is LaneKind.COMPUTE
        if links or device:
            height = 1.0 if device else LINK_ROW
            rows.append(Row(index, top, height, device))
            top += height
    return tuple(rows)


def _place(numbered: tuple[int, Lane]) -> tuple[int, LaneKind, int]:
    index, lane = numbered
    anchor = min(lane.device, lane.peer) if lane.kind is LaneKind.LINK else lane.device
    return anchor, lane.kind, index


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """Parallelograms, one per span or half of an overlapped pair. All columns have one row per bar."""

    left: Floats
    """Seconds from the run's first start: where the upper edge begins."""
    right: Floats
    """Seconds: where the upper edge ends."""
    slant: Floats
    """Seconds by which the lower edge lies later; not 0 for transfers with latency only."""
    top: Floats
    """Rows from the panel's top."""
    bottom: Floats
    kind: Ints
    """A `Kind`; never OVERLAPPED."""
    stage: Ints
    micro_batch: Ints
    whole: Ints
    """bool: the bar is no half of a pair."""

    def __len__(self) -> int:
        return len(self.left)

    def vertices(self, chosen: Ints) -> Floats:
        """Return the corners of chosen bars: float64 (num_chosen, 4, 2), x in seconds and y in rows."""
        left, right, slant = self.left[chosen], self.right[chosen], self.slant[chosen]
        top, bottom = self.top[chosen], self.bottom[chosen]
        corners = ((left, top), (right, top), (right + slant, bottom), (left + slant, bottom))
        return np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)


def lay_out(timeline: Timeline, rows: tuple[Row, ...]) -> Bars:
    """Return the bars of all recorded spans whose lane has a row, times counted from the run's first start.

    Work that takes no time has no bar; a transfer has one even then.
    """
    graph = timeline.graph
    tops, heights = _by_lane(graph, rows)
    lane = graph.lane
    visible = (timeline.end > timeline.start) | (graph.kind == Kind.TRANSFER)
    task = np.flatnonzero(timeline.recorded & visible & ~np.isnan(tops[lane]))
    begin = float(np.nanmin(timeline.start)) if len(task) else 0.0
    start, end = timeline.start[task] - begin, timeline.end[task] - begin
    free = end if timeline.release is None else timeline.release[task] - begin
    lane = lane[task]
    margin = MARGIN * heights[lane]
    upper, lower = tops[lane] + margin, tops[lane] + heights[lane] - margin
    #   sender    |=====|            a transfer leans by its latency: its edge at the sender is the time on the link, that at the
    #               \     \          receiver comes later
    #   receiver      |=====|
    # columns are of the upper edge, so where the receiver stands above, the upper edge is the later one and the slant negative
    slant = np.where(graph.kind[task] == Kind.TRANSFER, end - free, 0.0)
    rising = (slant > 0) & _leads_up(graph)[lane]
    bars = Bars(
        left=np.where(rising, start + slant, start),
        right=np.where(rising, free + slant, free),
        slant=np.where(rising, -slant, slant),
        top=upper,
        bottom=lower,
        kind=graph.kind[task],
        stage=graph.stage[task],
        micro_batch=graph.micro_batch[task],
        whole=np.ones(len(task), bool),
    )
    return _split_pairs(bars, graph, task) if len(graph.pairs) else bars


def _by_lane(graph: TaskGraph, rows: tuple[Row, ...]) -> tuple[Floats, Floats]:
    tops, heights = np.full(len(graph.lanes), np.nan), np.zeros(len(graph.lanes))
    for row in rows:
        tops[row.lane], heights[row.lane] = row.top, row.height
    return tops, heights


def _leads_up(graph: TaskGraph) -> Ints:
    """Say for every lane whether it is a link to a device that stands above the sender: bool (num_lanes)."""
    return np.array([lane.kind is LaneKind.LINK and lane.peer < lane.device for lane in graph.lanes], bool)


def _split_pairs(bars: Bars, graph: TaskGraph, task: Ints) -> Bars:
    """Cut the bars of overlapped pairs in two: the forward above, the backward below."""
    pair = bars.kind == Kind.OVERLAPPED
    row = np.searchsorted(graph.pairs.task, task[pair])
    middle = (bars.top + bars.bottom) / 2

    def join(column: Floats | Ints, lower: Floats | Ints) -> Floats:
        return np.concatenate((column, lower))

    return Bars(
        left=join(bars.left, bars.left[pair]),
        right=join(bars.right, bars.right[pair]),
        slant=join(bars.slant, bars.slant[pair]),
        top=join(bars.top, middle[pair]),
        bottom=join(np.where(pair, middle, bars.bottom), bars.bottom[pair]),
        kind=join(np.where(pair, Kind.FORWARD, bars.kind), graph.pairs.kind[row]),
        stage=join(bars.stage, graph.pairs.stage[row]),
        micro_batch=join(bars.micro_batch, graph.pairs.micro_batch[row]),
        whole=join(~pair, np.zeros(len(row), bool)),
    )
