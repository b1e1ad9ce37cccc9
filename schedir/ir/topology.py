"""Find an order in which a graph's tasks can run, or the actions that wait for each other for ever.

This is the proof that a program has no cycle: every lane runs its tasks in order, so a run is stuck exactly when the next
task of every unfinished lane waits for one that has not run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.graph import Topology
from schedir.ir.in_order import WAVE_LANES
from schedir.ir.program import Ints, frozen_array


@dataclass(frozen=True, slots=True)
class Wiring:
    """The part of a graph that decides what can run when."""

    lane_start: Ints
    edge_start: Ints
    edge_source: Ints
    num_devices: int
    num_reductions: int = 0


class BlockedError(Exception):
    """Not all tasks can run. `waiting` has the next task of each stuck lane and the task that it waits for."""

    def __init__(self, waiting: tuple[tuple[int, int], ...]) -> None:
        super().__init__(waiting)
        self.waiting = waiting


def find_order(wiring: Wiring) -> Topology:
    """Return an order that respects lanes and edges; raise `BlockedError` if there is none."""
    if wiring.num_devices >= WAVE_LANES and not wiring.num_reductions:
        topology = _by_rounds(wiring)
        if topology is not None:
            return topology
    return _by_worklist(wiring)


def _by_worklist(wiring: Wiring) -> Topology:
    """Run every lane until its head waits; wake it when what it waits for is done. Linear in tasks and edges."""
    lane_start, first_edge, source = (array.tolist() for array in (wiring.lane_start, wiring.edge_start, wiring.edge_source))
    num_tasks = lane_start[-1]
    done = bytearray(num_tasks)
    waiting: dict[int, list[int]] = {}
    position = lane_start[:-1]
    order: list[int] = []
    runnable = list(range(len(position) - 1, -1, -1))
    while runnable:
        lane = runnable.pop()
        task, stop = position[lane], lane_start[lane + 1]
        while task < stop:
            missing = next((need for need in source[first_edge[task] : first_edge[task + 1]] if not done[need]), -1)
            if missing >= 0:
                waiting.setdefault(missing, []).append(lane)
                break
            done[task] = 1
            order.append(task)
            if task in waiting:
                runnable.extend(waiting.pop(task))
            task += 1
        position[lane] = task
    if len(order) < num_tasks:
        stuck = sorted((position[lane], missing) for missing, lanes in waiting.items() for lane in lanes)
        raise BlockedError(tuple(stuck))
    return Topology(frozen_array(order, np.int32), None)


def _by_rounds(wiring: Wiring) -> Topology | None:
    """Advance all devices by at most one task a round; transfers follow in a wave of their own behind their senders.

    Returns None where the waves are not that simple (stuck programs, two transfers of one link in one wave).
    """
    num_compute = int(wiring.lane_start[wiring.num_devices])
    sender = wiring.edge_source[wiring.edge_start[num_compute:-1]]  # a transfer has exactly one source
    needs = _compute_needs(wiring, num_compute, sender)
    done = np.zeros(num_compute + 1, bool)
    done[num_compute] = True
    position = wiring.lane_start[: wiring.num_devices].astype(np.int64)
    stop = wiring.lane_start[1 : wiring.num_devices + 1]
    alive: Ints = position < stop
    position, stop = position[alive], stop[alive]
    rounds: list[Ints] = []
    while len(position):
        ready = done[needs[0][position]]
        for column in needs[1:]:
            ready &= done[column[position]]
        tasks = position[ready]
        if not len(tasks):
            return None
        done[tasks] = True
        rounds.append(tasks)
        position = position + ready
        if (position == stop).any():
            alive = position < stop
            position, stop = position[alive], stop[alive]
    return _with_transfers(wiring, rounds, sender)


def _compute_needs(wiring: Wiring, num_compute: int, sender: Ints) -> list[Ints]:
    """Return columns of compute tasks that each compute task waits for, through transfers; num_compute = none."""
    widths = np.diff(wiring.edge_start[: num_compute + 1])
    columns = []
    for k in range(max(int(widths.max(initial=0)), 1)):
        column = np.full(num_compute, num_compute, np.int64)
        wide = np.flatnonzero(widths > k)
        sources = wiring.edge_source[wiring.edge_start[wide] + k]
        column[wide] = np.where(
            sources < num_compute, sources, sender[np.maximum(sources - num_compute, 0)] if len(sender) else sources
        )
        columns.append(column)
    return columns


def _with_transfers(wiring: Wiring, rounds: list[Ints], sender: Ints) -> Topology | None:
    num_compute, num_tasks = int(wiring.lane_start[wiring.num_devices]), int(wiring.lane_start[-1])
    sizes = np.fromiter(map(len, rounds), np.int64, len(rounds))
    level = np.empty(num_tasks, np.int32)
    level[np.concatenate(rounds)] = 2 * np.repeat(np.arange(len(rounds), dtype=np.int32), sizes)
    level[num_compute:] = level[sender] + 1
    transfers_level = level[num_compute:]
    starts_lane = np.zeros(num_tasks - num_compute + 1, bool)
    starts_lane[wiring.lane_start[wiring.num_devices :] - num_compute] = True
    if (np.diff(transfers_level) <= 0)[~starts_lane[1 : num_tasks - num_compute]].any():
        return None
    sizes_by_level = np.bincount(level, minlength=2 * len(rounds))
    order = np.argsort(level.astype(np.uint16), kind="stable") if len(rounds) < 2**15 else np.argsort(level, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(sizes_by_level[sizes_by_level > 0])))
    return Topology(frozen_array(order, np.int32), frozen_array(bounds, np.int64))
