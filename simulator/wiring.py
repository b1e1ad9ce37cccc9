"""A task graph as plain lists, turned round: for every task, who waits for it. Lists are what a Python loop reads fastest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.graph import TaskGraph

NOBODY = -1
SEVERAL = -2


@dataclass(frozen=True, slots=True, eq=False)
class Wiring:
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


def wire(graph: TaskGraph) -> Wiring:
    """Turn a graph's edges round."""
    num_sources = np.diff(graph.edge_start)
    target = np.repeat(np.arange(graph.num_tasks), num_sources)
    count = np.bincount(graph.edge_source, minlength=graph.num_tasks)
    reader = np.full(graph.num_tasks, NOBODY)
    reader[graph.edge_source] = target
    reader[count > 1] = SEVERAL
    readers: dict[int, list[int]] = {}
    shared = np.flatnonzero(count[graph.edge_source] > 1)
    for source, waiting in zip(graph.edge_source[shared].tolist(), target[shared].tolist(), strict=True):
        readers.setdefault(source, []).append(waiting)
    return Wiring(
        num_sources=num_sources.tolist(),
        reader=reader.tolist(),
        readers=readers,
        lane=graph.lane.tolist(),
        first=graph.lane_start[:-1].tolist(),
        stop=graph.lane_start[1:].tolist(),
    )
