"""Find an order in which a graph's tasks can run, or the actions that wait for each other for ever.

This is the proof that a program has no cycle: every lane runs its tasks in order, so a run is stuck exactly when the next
task of every unfinished lane waits for one that has not run.

A transfer has one source and its link carries what one device sends, in that device's order. So transfers never decide what
can run: the search looks at compute tasks only, through their transfers, and puts every transfer right behind its sender.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from schedir.ir.graph import Needs, Topology
from schedir.ir.program import Ints, frozen_array

WAVE_LANES = 24
"""From this many devices on, waves are faster than a Python loop (measured: about 8 µs a wave, 0.2 µs a task)."""

_TO_DO, _DONE = 0, 1


@dataclass(frozen=True, slots=True)
class Wiring:
    """The part of a graph that decides what can run when."""

    lane_start: Ints
    edge_start: Ints
    edge_source: Ints
    num_devices: int
    num_reductions: int = 0
    """Reductions wait for several tasks: with any, transfers are not looked through."""

    @property
    def num_compute(self) -> int:
        """Number of tasks on compute lanes."""
        return int(self.lane_start[self.num_devices])

    @property
    def num_tasks(self) -> int:
        """Number of tasks on all lanes."""
        return int(self.lane_start[-1])


class BlockedError(Exception):
    """Not all tasks can run. `waiting` has the next task of each stuck lane and the task that it waits for."""

    def __init__(self, waiting: tuple[tuple[int, int], ...]) -> None:
        super().__init__(waiting)
        self.waiting = waiting


def find_order(wiring: Wiring) -> Topology:
    """Return an order that respects lanes and edges; raise `BlockedError` if there is none."""
    if wiring.num_reductions:
        return Topology(frozen_array(_search(wiring), np.int32), None, None)
    needs = _look_through(wiring)
    if wiring.num_devices >= WAVE_LANES:
        rounds = _by_rounds(wiring, needs)
        if rounds is not None:
            return _topology(wiring, needs, np.concatenate(rounds), sizes=np.fromiter(map(len, rounds), np.int64, len(rounds)))
    order = _search_one_need(wiring, needs) if len(needs.source) == 1 else None
    if order is None:  # several needs a task, or stuck: then the full search names who waits for whom
        order = [task for task in _search(wiring) if task < wiring.num_compute]
    return _topology(wiring, needs, np.array(order, np.int32), sizes=None)


def _look_through(wiring: Wiring) -> Needs:
    """Return the compute tasks that each compute task waits for, and the transfers through which it does."""
    num_compute = wiring.num_compute
    # the needs as columns, since few tasks have more than one:
    #   task        0  1  2  3
    #   source[0]   .  0  0  2       . = num_compute, the number of a task that does not exist and is always done
    #   source[1]   .  .  1  .       (its transfer: num_tasks, which has latency 0)
    sender = wiring.edge_source[wiring.edge_start[num_compute:-1]]
    widths = np.diff(wiring.edge_start[: num_compute + 1])
    sources, through = [], []
    for k in range(max(int(widths.max(initial=0)), 1)):
        wide = np.flatnonzero(widths > k)
        found = wiring.edge_source[wiring.edge_start[wide] + k]
        remote = found >= num_compute
        transfer = np.full(num_compute, wiring.num_tasks, np.int32)
        transfer[wide[remote]] = found[remote]
        # behind a transfer stands the compute task that sends it
        found[remote] = sender[found[remote] - num_compute]
        source = np.full(num_compute, num_compute, np.int32)
        source[wide] = found
        sources.append(frozen_array(source, np.int32))
        through.append(frozen_array(transfer, np.int32))
    return Needs(tuple(sources), tuple(through), frozen_array(sender, np.int32))


def _search_one_need(wiring: Wiring, needs: Needs) -> list[int] | None:
    """Run every device until its next task waits; wake it when what it waits for is done. None if stuck.

    Linear, and as lean as Python allows: it runs for every configuration of a sweep. If two devices wait for one task, only the
    later is woken, and the other is stuck.
    """
    lane_start = wiring.lane_start[: wiring.num_devices + 1].tolist()
    num_compute = lane_start[-1]
    need = needs.source[0].tolist()
    state = [_TO_DO] * num_compute + [_DONE]  # -1 - d: to do, and device d waits for it
    # iterators: a device goes on where it stopped; the task that it could not run is out of them and waits in `blocked`
    rest = [zip(range(*ends), need[slice(*ends)], strict=True) for ends in pairwise(lane_start)]
    blocked: list[tuple[tuple[int, int], ...]] = [()] * wiring.num_devices
    order: list[int] = []
    # a stack, with device 0 on top
    runnable = list(range(wiring.num_devices - 1, -1, -1))
    while runnable:
        device = runnable.pop()
        for task, source in chain(blocked[device], rest[device]):
            if state[source] != _DONE:
                state[source] = -1 - device
                blocked[device] = ((task, source),)
                break
            order.append(task)
            if waiter := state[task]:
                runnable.append(-1 - waiter)
            state[task] = _DONE
    return order if len(order) == num_compute else None


def _search(wiring: Wiring) -> list[int]:
    """Search over all lanes and edges, for any graph; raise `BlockedError` with who waits for whom."""
    lane_start, first_edge, source = (array.tolist() for array in (wiring.lane_start, wiring.edge_start, wiring.edge_source))
    done = bytearray(lane_start[-1])
    waiting: dict[int, list[int]] = {}
    position = lane_start[:-1]
    order: list[int] = []
    runnable = list(range(len(position) - 1, -1, -1))
    while runnable:
        lane = runnable.pop()
        task, stop = position[lane], lane_start[lane + 1]
        while task < stop:
            # the first need that is missing will do: whoever runs it wakes this lane, which then looks again
            missing = next((need for need in source[first_edge[task] : first_edge[task + 1]] if not done[need]), -1)
            if missing >= 0:
                waiting.setdefault(missing, []).append(lane)
                break
            done[task] = 1
            order.append(task)
            runnable.extend(waiting.pop(task, ()))
            task += 1
        position[lane] = task
    if len(order) < len(done):
        raise BlockedError(tuple(sorted((position[lane], need) for need, lanes in waiting.items() for lane in lanes)))
    return order


def _by_rounds(wiring: Wiring, needs: Needs) -> list[Ints] | None:
    """Advance all devices by at most one task a round, vectorized over devices; None if stuck."""
    done = np.zeros(wiring.num_compute + 1, bool)
    done[-1] = True
    position = wiring.lane_start[: wiring.num_devices].astype(np.int64)
    stop = wiring.lane_start[1 : wiring.num_devices + 1]
    alive: Ints = position < stop
    position, stop = position[alive], stop[alive]
    rounds: list[Ints] = []
    while len(position):
        # every device looks at its next task before any of them is done: the tasks of a round do not need each other
        ready = done[needs.source[0][position]]
        for column in needs.source[1:]:
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
    return rounds


def _topology(wiring: Wiring, needs: Needs, compute_order: Ints, *, sizes: Ints | None) -> Topology:
    """Put every transfer right behind its sender (behind its sender's wave)."""
    num_compute = wiring.num_compute
    place = np.empty(num_compute, np.int32)
    place[compute_order] = (
        np.arange(num_compute, dtype=np.int32) if sizes is None else np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    )
    # even keys for compute tasks, the odd key behind each for what it sends
    key = np.concatenate((2 * place, 2 * place[needs.sender] + 1))
    bounds = None if sizes is None else frozen_array(np.concatenate(([0], np.cumsum(sizes))), np.int64)
    return Topology(frozen_array(np.argsort(key, kind="stable"), np.int32), bounds, needs, frozen_array(compute_order, np.int32))
