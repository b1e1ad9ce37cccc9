"""A list scheduler on the tables of a search: every device, when it is free, runs the first of what is ready and fits.

A forward is let in only if its device could still finish the micro-batches that are under way one after the other, the oldest
first (the banker's rule, Dijkstra 1965). So no limit that admits one micro-batch at a time makes it stick.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from schedir.ir.action import Kind
from schedir.search.heuristics.styles import ListStyle, Priority
from schedir.search.problem.room import Resource, Room
from schedir.search.problem.tables import NOTHING, Tables
from schedir.search.problem.work import Order

LOOKED_AT = 256
"""Events between two looks at the clock."""


def list_order(
    tables: Tables, room: Room, style: ListStyle, *, out_of_time: Callable[[], bool] = lambda: False
) -> list[Order] | None:
    """Return the orders that a style makes; None if one micro-batch at a time is too much for the room, or time is up."""
    return _Lister(tables, room, style).run(out_of_time)


@dataclass(slots=True)
class _Device:
    """What a device knows."""

    stages: list[int]
    free: float = 0.0
    order: Order = field(default_factory=list)
    backwards: list[tuple[Priority, int]] = field(default_factory=list)
    """Heap of the backwards that may start."""
    forwards: dict[int, list[tuple[Priority, int]]] = field(default_factory=dict)
    """By stage: heap of the forwards that may start. If the first is not let in, only the oldest of the others is tried."""
    late: deque[int] = field(default_factory=deque)
    """W that are put off."""
    held: list[int] = field(default_factory=list)
    """Of each resource."""
    alive: int = 0
    """(stage, micro-batch) pairs under way."""
    under_way: dict[int, set[int]] = field(default_factory=dict)
    """Micro-batch -> stages whose forward has run, until the last of the device's stages is done with it."""
    done: dict[int, int] = field(default_factory=dict)
    """Micro-batch -> how many of the device's stages are done with it."""
    oldest: int = 0
    """The first micro-batch that is not done."""


class _Lister:
    """The state of one simulated run; its heap holds arrivals (work becomes ready) and wake-ups (a device is free)."""

    def __init__(self, tables: Tables, room: Room, style: ListStyle) -> None:
        self._tables, self._numbering = tables, tables.numbering
        self._split = style.split
        self._priority = style.priorities()
        self._devices = [_Device(tables.hosted(device), held=[0] * len(room)) for device in range(tables.num_devices)]
        self._room = room
        self._style = style
        self._link_free = [0.0] * (max(tables.link, default=0) + 1)
        self._heap: list[tuple[float, bool, int, int]] = []

    def run(self, out_of_time: Callable[[], bool]) -> list[Order] | None:
        """Return the orders, or None."""
        events = 0
        for j in range(self._numbering.num_micro_batches):
            self._arrive(j * self._style.pace, self._numbering.of(Kind.FORWARD, 0, j))
        # at one time arrivals (False) come before wake-ups (True): a device chooses among all that is ready by then
        while self._heap:
            events += 1
            if events % LOOKED_AT == 0 and out_of_time():
                return None
            time, is_wake_up, index, number = heapq.heappop(self._heap)
            device = self._devices[index]
            if not is_wake_up:
                kind, stage, j = self._numbering.work(number)
                heap = device.forwards.setdefault(stage, []) if kind is Kind.FORWARD else device.backwards
                heapq.heappush(heap, (self._priority(kind, stage, j), number))
                # a busy device looks when it is free, at all that has come by then
                heapq.heappush(self._heap, (max(time, device.free), True, index, NOTHING))
            # a device has one wake-up for every arrival: those that find it at work again are of no use
            elif device.free <= time:
                self._run_best(index, time)
        # nothing is left to happen: work that is missing now waits for room for ever
        each = 3 if self._split else 2
        done = sum(len(device.order) for device in self._devices)
        wanted = each * self._numbering.num_stages * self._numbering.num_micro_batches
        return [self._in_turn(device.order) for device in self._devices] if done == wanted else None

    def _in_turn(self, order: Order) -> Order:
        return self._numbering.in_turn([self._numbering.work(number)[:2] for number in order])

    def _arrive(self, time: float, number: int) -> None:
        home = self._tables.homes[self._numbering.work(number)[1]]
        heapq.heappush(self._heap, (time, False, home, number))

    def _run_best(self, index: int, time: float) -> None:
        device = self._devices[index]
        # W that are put off hold memory: beyond so many of them the oldest runs, whatever else is ready
        number = None if len(device.late) > self._style.put_off else self._choose(index)
        if number is None:
            if not device.late:
                return
            number = device.late.popleft()
        self._start(index, number, time)

    def _choose(self, index: int) -> int | None:
        """Take the first by priority of what is ready and, if it is a forward, fits; None if there is none."""
        device = self._devices[index]
        heaps = [heap for heap in (device.backwards, *device.forwards.values()) if heap]
        for heap in sorted(heaps, key=lambda heap: heap[0]):
            if heap is device.backwards or self._admits(index, heap[0][1]):
                return heapq.heappop(heap)[1]
        # without noise the first of a stage is its oldest, so nothing else of it could be let in
        return self._oldest_behind(index) if self._style.noise else None

    def _oldest_behind(self, index: int) -> int | None:
        """Take the oldest forward of a stage, which shaken priorities may have put behind one that is not let in."""
        device = self._devices[index]
        for heap in filter(None, device.forwards.values()):
            oldest = min(heap, key=lambda entry: entry[1])
            if oldest is not heap[0] and self._admits(index, oldest[1]):
                heap.remove(oldest)
                heapq.heapify(heap)
                return oldest[1]
        return None

    def _admits(self, index: int, number: int) -> bool:
        _, stage, j = self._numbering.work(number)
        device = self._devices[index]
        # the oldest is always let in: it frees what the others wait for, so a style alone never makes a device stick
        if device.alive >= self._style.most[index] and j > device.oldest:
            return False
        return all(self._is_safe(device, resource, (index, which, stage, j)) for which, resource in enumerate(self._room))

    def _is_safe(self, device: _Device, resource: Resource, forward: tuple[int, int, int, int]) -> bool:
        """Tell whether all that is under way could still be finished, the oldest first, if this forward ran now."""
        index, which, stage, j = forward
        number = self._numbering.of(Kind.FORWARD, stage, j)
        if device.held[which] + resource.takes[number] > resource.most[index]:
            return False
        free = resource.most[index] - device.held[which] - self._kept(resource, stage, j)
        # finish them one after the other: what an older one lacks must fit into what is free, and what it held is free for the next
        for micro_batch in range(device.oldest, max([j, *device.under_way]) + 1):
            if device.done.get(micro_batch) == len(device.stages):
                continue
            ran = device.under_way.get(micro_batch, set()) | ({stage} if micro_batch == j else set())
            missing = [other for other in device.stages if other not in ran]
            if sum(self._kept(resource, other, micro_batch) for other in missing) > free:
                return False
            free += sum(self._kept(resource, other, micro_batch) for other in ran)
        return True

    def _kept(self, resource: Resource, stage: int, j: int) -> int:
        number = self._numbering.of(Kind.FORWARD, stage, j)
        return resource.takes[number] - resource.gives[number]

    def _start(self, index: int, number: int, time: float) -> None:
        tables, device = self._tables, self._devices[index]
        kind, stage, j = self._numbering.work(number)
        device.order.append(number)
        device.held = [held + r.takes[number] - r.gives[number] for held, r in zip(device.held, self._room, strict=True)]
        self._note(device, (kind, stage, j))
        end = time + tables.before[number] + tables.work[number]
        device.free = end + tables.behind[number]
        heapq.heappush(self._heap, (device.free, True, index, NOTHING))
        reader = self._reader(kind, stage, j)
        if reader is not None:
            # in the order in which they are made, as the graph lays them on a link: what comes first is sent first
            occupied = tables.occupies[number]
            if occupied:
                end = self._link_free[tables.link[number]] = max(end, self._link_free[tables.link[number]]) + occupied
            self._arrive(end + tables.delay[number], reader)

    def _note(self, device: _Device, work: tuple[Kind, int, int]) -> None:
        """Note what is under way, and W to come."""
        kind, stage, j = work
        if kind is Kind.FORWARD:
            device.alive += 1
            device.under_way.setdefault(j, set()).add(stage)
        elif kind is Kind.INPUT_GRAD:
            device.late.append(self._numbering.of(Kind.WEIGHT_GRAD, stage, j))
        else:
            device.alive -= 1
            device.under_way[j].discard(stage)
            device.done[j] = device.done.get(j, 0) + 1
            if device.done[j] == len(device.stages):
                del device.under_way[j]
            while device.done.get(device.oldest) == len(device.stages):
                device.oldest += 1

    def _reader(self, kind: Kind, stage: int, j: int) -> int | None:
        """Return the work that waits for a result."""
        if kind is Kind.WEIGHT_GRAD:
            return None
        backward = Kind.INPUT_GRAD if self._split else Kind.BACKWARD
        if kind is not Kind.FORWARD:
            return self._numbering.of(backward, stage - 1, j) if stage else None
        top = stage == self._numbering.num_stages - 1
        return self._numbering.of(backward, stage, j) if top else self._numbering.of(kind, stage + 1, j)
