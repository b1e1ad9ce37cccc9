"""Find an order in which a graph's tasks can run, or the actions that wait for each other for ever.

This is the proof that a program has no cycle: every lane runs its tasks in order, so a run is stuck exactly when the next
task of every unfinished lane waits for one that has not run.

A transfer has one source and its link carries what one device sends, in that device's order. So transfers never decide what
can run: the search looks at compute tasks only, through their transfers, and puts every transfer right behind its sender.

A common update is a barrier: on every device all updates of a mini-batch stand behind all of its other tasks and before those of
the next one. So an order without the reductions, cut into mini-batches, is one with them: each stands where its mini-batch ends.
"""

from __future__ import annotations

from itertools import cycle, pairwise

import numpy as np
from numpy.typing import ArrayLike

from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.order.precedence import Precedence, look_through
from schedir.ir.order.topology import Needs, Topology

WAVE_LANES = 24
"""From this many devices on, waves are faster than a Python loop (measured: about 8 µs a wave, 0.2 µs a task)."""


class BlockedError(Exception):
    """Not all tasks can run. `waiting` has the next task of each stuck lane and the task that it waits for."""

    def __init__(self, waiting: tuple[tuple[int, int], ...]) -> None:
        super().__init__(waiting)
        self.waiting = waiting


def find_order(precedence: Precedence) -> Topology:
    """Return an order that respects lanes and edges; raise `BlockedError` if there is none."""
    if precedence.num_reductions and precedence.period is not None:
        return _complete(precedence, _by_periods(_without_reductions(precedence), precedence.period))
    if precedence.num_reductions:
        return _complete(precedence, _search(precedence))
    # few devices: a Python loop over turns; many: numpy over rounds, if every device gets on; else the search that explains
    needs = look_through(precedence)
    if precedence.num_devices >= WAVE_LANES:
        waves = _by_rounds(precedence, needs)
        if waves is not None:
            return Topology(frozen_array(waves[0], np.int32), needs, frozen_array(waves[1], np.int64))
    order = _by_turns(precedence, needs) if len(needs.source) == 1 else None
    if order is None:  # several needs a task, or stuck: then the full search names who waits for whom
        order = np.array([task for task in _search(precedence) if task < precedence.num_compute], np.int32)
    return Topology(frozen_array(order, np.int32), needs)


def _complete(precedence: Precedence, order: ArrayLike) -> Topology:
    """Return the topology of an order of all tasks, reductions among them."""
    complete = frozen_array(order, np.int32)
    return Topology(
        frozen_array(complete[complete < precedence.num_compute], np.int32), look_through(precedence), complete=complete
    )


def _without_reductions(precedence: Precedence) -> Precedence:
    """Return the same tasks but for the reductions, which nothing waits for then."""
    first = precedence.num_tasks - precedence.num_reductions
    # an update that lost its reduction still stands behind its device's gradients: the lane orders them
    source = precedence.edge_source[: precedence.edge_start[first]]
    kept = np.concatenate(([0], np.cumsum(source < first)))
    lanes = int(np.searchsorted(precedence.lane_start, first, side="right"))
    return Precedence(
        precedence.lane_start[:lanes], kept[precedence.edge_start[: first + 1]], source[source < first], precedence.num_devices
    )


def _by_periods(precedence: Precedence, period: Ints) -> Ints:
    """Order all tasks by period, inside one as without reductions; those end their period, sums before what they feed."""
    # the stable sorts leave tasks of one period as they stand: transfers behind their senders, reductions by their numbers
    order = np.concatenate((find_order(precedence).order, np.arange(precedence.num_tasks, len(period), dtype=np.int32)))
    in_turn: Ints = order[np.argsort(period[order], kind="stable")]
    return in_turn


def _by_turns(precedence: Precedence, needs: Needs) -> Ints | None:
    """Let each device run until its next task waits, down the devices and up again; return the tasks turn by turn.

    None if stuck. As lean as Python allows: it runs for every configuration of a sweep. A task is done if its device has come
    past it. Devices that wait are looked at in vain, but that takes little, and there are fewer than WAVE_LANES of them.
    """
    starts = precedence.lane_start[: precedence.num_devices + 1]
    source = needs.source[0]
    home = np.searchsorted(starts, source, side="right") - 1  # of those that need nothing one behind the last device
    bounds, needed, homes = starts.tolist(), source.tolist(), home.tolist()
    # by device its next task; behind the devices one more, which is past everything: who needs nothing waits for it
    past = [*bounds[:-1], bounds[-1] + 1]
    rest = [zip(needed[low:high], homes[low:high], strict=True) for low, high in pairwise(bounds)]
    held = [next(of_device) for of_device in rest]  # what the next task of each device needs
    sweep = (*range(precedence.num_devices), *reversed(range(precedence.num_devices)))
    turns: list[int] = []
    idle = 0
    # forwards come down the devices and gradients go up, so a sweep each way follows both
    for device in cycle(sweep):
        need, other = held[device]
        if past[other] <= need:
            idle += 1
            # a whole sweep in vain: nobody can ever go on
            if idle > len(sweep):
                break
            continue
        idle = 0
        task = past[device] + 1
        for need, other in rest[device]:
            if past[other] <= need:
                held[device] = need, other
                break
            task += 1
        else:
            held[device] = past[-1], device  # which no device comes past
        turns += (past[device], task)
        past[device] = task
    first, stop = np.array(turns, np.int32).reshape(-1, 2).T
    order = _ranges(first, stop - first)
    return order if len(order) == precedence.num_compute else None


def _ranges(first: Ints, sizes: Ints) -> Ints:
    """Return first[0], first[0] + 1, … (sizes[0] numbers), first[1], …, int32."""
    before = sizes.cumsum()
    shift: Ints = (first - before + sizes).repeat(sizes)
    return shift + np.arange(before[-1])


def _search(precedence: Precedence) -> list[int]:
    """Search over all lanes and edges, for any graph; raise `BlockedError` with who waits for whom."""
    lane_start, first_edge, source = (
        array.tolist() for array in (precedence.lane_start, precedence.edge_start, precedence.edge_source)
    )
    done = bytearray(lane_start[-1])
    waiting: dict[int, list[int]] = {}
    position = lane_start[:-1]
    order: list[int] = []
    # taken from the end: device 0 goes first, where the forwards come from
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


def _by_rounds(precedence: Precedence, needs: Needs) -> tuple[Ints, Ints] | None:
    """Advance all devices by at most one task a round, vectorized over devices.

    Return the tasks round by round and the bounds of the rounds; None if stuck. Every lane has one place more behind its last
    task, which is never ready, so that devices that are done need no looking at.
    """
    num_compute, num_devices = precedence.num_compute, precedence.num_devices
    starts = precedence.lane_start[: num_devices + 1]
    device = np.repeat(np.arange(num_devices), np.diff(starts))
    place = np.arange(num_compute + 2)  # in the places of the lanes: those of all tasks, of none, and one that is never ready
    #   lanes of 3 and 2 tasks      task    0 1 2   3 4   nothing   never
    #                               place   0 1 2 . 4 5 .    7        8        a dot behind each lane, which needs `never`
    place[:num_compute] += device
    place[num_compute:] += num_devices
    need = []
    for source in needs.source:
        column = np.full(place[-1], place[-1])
        column[place[:num_compute]] = place[source]
        need.append(column)
    done = np.zeros(place[-1] + 1, bool)
    done[place[num_compute]] = True
    rounds = _advance(starts[:-1] + np.arange(num_devices), need, done)
    sizes = np.fromiter(map(len, rounds), np.int64, len(rounds))
    if sizes.sum() < num_compute:
        return None
    order = np.concatenate(rounds)
    owner = np.zeros(place[-1], np.int32)
    owner[place[:num_compute]] = device
    return order - owner[order], np.concatenate(([0], np.cumsum(sizes)))


def _advance(position: Ints, need: list[Ints], done: Ints) -> list[Ints]:
    """Return the places that are run in each round; indices are of the machine's own width, which is thrice as fast."""
    rounds: list[Ints] = []
    first, *others = need
    while True:
        # every device looks at its next task before any of them is done: the tasks of a round do not need each other
        ready = done[first[position]]
        for column in others:
            ready &= done[column[position]]
        ran = position[ready]
        if not len(ran):
            return rounds
        done[ran] = True
        rounds.append(ran)
        position = position + ready
