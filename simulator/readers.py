"""A task graph as plain lists, turned round: for every task, who waits for it. Lists are what a Python loop reads fastest."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind

NOBODY = -1
SEVERAL = -2


@dataclass(frozen=True, slots=True, eq=False)
class Readers:
    """Who waits for whom. Edges between neighbours of a lane are left out: a lane runs its tasks in order."""

    num_sources: list[int]
    """By task: how many others it waits for."""
    reader: list[int]
    """By task: the only one that waits for it, NOBODY, or SEVERAL."""
    readers: dict[int, list[int]]
    """All that wait for a task, where there are SEVERAL."""
    lane: list[int]
    """By task."""
    first: list[int]
    """By lane: its first task."""
    stop: list[int]
    """By lane: one behind its last task."""
    one_to_one: list[bool]
    """By lane: its tasks have one source and one reader each. Lowering sorts a link's transfers by their makers, so where these
    are of one device, as a link's are, what comes first is first in its lane."""


def readers_of(graph: TaskGraph) -> Readers:
    """Return the edges of a graph turned round."""
    num_sources = np.diff(graph.edge_start)
    target = np.repeat(np.arange(graph.num_tasks), num_sources)
    count = np.bincount(graph.edge_source, minlength=graph.num_tasks)
    reader = np.full(graph.num_tasks, NOBODY)
    # of several readers the last one stays here, until SEVERAL is written over it
    reader[graph.edge_source] = target
    reader[count > 1] = SEVERAL
    readers: dict[int, list[int]] = {}
    shared = np.flatnonzero(count[graph.edge_source] > 1)
    for source, waiting in zip(graph.edge_source[shared].tolist(), target[shared].tolist(), strict=True):
        readers.setdefault(source, []).append(waiting)
    return Readers(
        num_sources=num_sources.tolist(),
        reader=reader.tolist(),
        readers=readers,
        lane=graph.lane.tolist(),
        first=graph.lane_start[:-1].tolist(),
        stop=graph.lane_start[1:].tolist(),
        one_to_one=_one_to_one(graph, num_sources, count),
    )


def _one_to_one(graph: TaskGraph, num_sources: Ints, num_readers: Ints) -> list[bool]:
    single = (num_sources == 1) & (num_readers == 1)
    bounds = pairwise(graph.lane_start.tolist())
    return [
        lane.kind is LaneKind.LINK and bool(single[low:high].all()) for lane, (low, high) in zip(graph.lanes, bounds, strict=True)
    ]
