"""How busy links are, and how long transfers queue for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedir.ir.lanes import Lane, LaneKind
from schedir.timeline.metrics.idle import ready_times
from schedir.timeline.settled import SettledTimes


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One direction of a link between two devices."""

    link: str
    """Its lane, as in `Timeline.records`: `link 0->1`."""
    from_device: int
    to_device: int
    transfers: int
    """Hand-overs in the whole run."""
    bytes: int | None
    """Bytes in the whole run; None if the costs carry none."""
    busy_s: float
    """Seconds in which the link is occupied; latency occupies nothing."""
    waiting_s: float
    """Seconds that transfers queued for it, summed over transfers."""


def link_rows(settled: SettledTimes, link_bytes: Mapping[str, int] | None) -> tuple[LinkRow, ...]:
    """Return a row for every link; none where transfers are not modelled (they take no time and carry no bytes)."""
    graph = settled.graph
    links = [index for index, lane in enumerate(graph.lanes) if lane.kind is LaneKind.LINK]
    if not links:
        return ()
    low, high = int(graph.lane_start[links[0]]), int(graph.lane_start[links[-1] + 1])
    start, end, release = (column[low:high] for column in (settled.start, settled.end, settled.release))
    if link_bytes is None and not (end - start).any():
        return ()
    # link lanes follow each other, so their tasks are one slice; no link is without transfers, as `reduceat` needs it
    first = graph.lane_start[links] - low
    # up to the release: latency occupies no link
    busy = np.add.reduceat(release - start, first)
    waiting = np.add.reduceat(start - ready_times(graph, settled.end, np.arange(low, high)), first)
    count = graph.lane_start[np.array(links) + 1] - graph.lane_start[links]
    columns = zip(links, count.tolist(), busy.tolist(), waiting.tolist(), strict=True)
    return tuple(_row(graph.lanes[index], transfers, link_bytes, busy_s=b, waiting_s=w) for index, transfers, b, w in columns)


def _row(lane: Lane, transfers: int, link_bytes: Mapping[str, int] | None, *, busy_s: float, waiting_s: float) -> LinkRow:
    name = str(lane)
    return LinkRow(
        link=name,
        from_device=lane.device,
        to_device=lane.peer,
        transfers=transfers,
        bytes=None if link_bytes is None else int(link_bytes[name]),
        busy_s=busy_s,
        waiting_s=waiting_s,
    )
