"""The critical path: the chain of tasks, each waiting for the one before it, that ends last.

It is found backwards from the last end: before a task stands whatever it waited for last, in its lane or by an edge. Where two
ended together the path stays in its lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.timeline.settled import SettledTimes, sum_by


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """What the makespan consists of; tasks that take no time are left out."""

    tasks: int
    """Tasks on the path that compute or reduce."""
    seconds_by_kind: Mapping[str, float]
    """Their seconds by the kind's word."""
    seconds_by_device: tuple[float, ...]
    """Their seconds by device."""
    transfer_s: float
    """Seconds of transfers on the path."""


def critical_tasks(settled: SettledTimes) -> Ints:
    """Return the tasks of the critical path, from the first to the last."""
    graph = settled.graph
    #   device 0    F0 ── F1 ╮                backwards: B1 waited for its lane, F1 for the arrival, the transfer for F1 of
    #   device 1         F0  ╰▶ F1 ── B1      device 0, and that for its lane again
    #
    # `item` reads one number of an array in a fraction of the time that indexing takes, and a path may be as long as the run
    start, release, end = settled.start.item, settled.release.item, settled.end.item
    first_edge, source_of = graph.edge_start.item, graph.edge_source.item
    lag_of = None if graph.edge_lag is None else graph.edge_lag.item
    heads = set(graph.lane_start.tolist())
    task = int(settled.end.argmax())
    path = [task]
    while True:
        # numbers of a lane's tasks follow each other, so the one before it is task - 1
        before, latest = (-1, -np.inf) if task in heads else (task - 1, release(task - 1))
        if latest >= start(task):  # nothing can have ended later
            # the lane was free no sooner than this task began, so the search over edges, the longer part, is spared
            path.append(task := before)
            continue
        for edge in range(first_edge(task), first_edge(task + 1)):
            source = source_of(edge)
            seen = end(source) if lag_of is None else end(source) + lag_of(edge)
            if seen > latest:
                before, latest = source, seen
        if before < 0:
            return np.array(path[::-1], np.int64)
        path.append(task := before)


def critical_path(settled: SettledTimes, tasks: Ints | None = None) -> CriticalPath:
    """Sum the critical path (`tasks` if it is known already) by kind and device."""
    graph = settled.graph
    path = critical_tasks(settled) if tasks is None else tasks
    seconds = path_seconds(settled, path)
    path, seconds = path[seconds > 0], seconds[seconds > 0]
    kind = graph.kind[path]
    sent = kind == Kind.TRANSFER
    by_kind = sum_by(kind[~sent], seconds[~sent], len(Kind)).tolist()
    return CriticalPath(
        tasks=int((~sent).sum()),
        seconds_by_kind={Kind(k).word: value for k, value in enumerate(by_kind) if value > 0},
        seconds_by_device=tuple(sum_by(graph.device[path[~sent]], seconds[~sent], graph.program.num_devices).tolist()),
        transfer_s=float(seconds[sent].sum()),
    )


def path_seconds(settled: SettledTimes, path: Ints) -> Floats:
    """Return the seconds of every task on a path; of a transfer that another queues behind only those that occupy the link."""
    seen = settled.end[path].copy()
    in_lane = np.flatnonzero(path[1:] == path[:-1] + 1)
    seen[in_lane] = settled.release[path[in_lane]]
    return seen - settled.start[path]
