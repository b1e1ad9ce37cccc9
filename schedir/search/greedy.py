"""A list scheduler on the tables of a search: every device, whenever it is free, runs what ranks first of what is ready and fits.

A forward is let in only if its device could still finish the micro-batches that are under way one after the other, the oldest
first (the banker's rule, Dijkstra 1965). So no limit that admits one micro-batch at a time makes it stick.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Protocol

from schedir.ir.action import Kind
from schedir.search.room import Resource, Room
from schedir.search.tables import NOTHING, Tables
from schedir.search.work import Order

Rank = tuple[float, ...]

UNBOUNDED = 2**30


class Ranking(Protocol):
    """Ranks forwards and backwards that are ready; what ranks lowest runs."""

    def __call__(self, kind: Kind, stage: int, micro_batch: int) -> Rank:
        """Return anything that sorts."""
        ...


@dataclass(frozen=True, slots=True)
class ListStyle:
    """How one run of the list scheduler ranks work; drawn at random, many of them make many orders."""

    forwards_first: bool
    deepest_first: bool
    """Of several stages of a device the last one's work first, else the oldest micro-batch's."""
    split: bool
    """Backwards are split, where both is allowed."""
    most: tuple[int, ...]
    """Pairs alive on each device beyond which only the oldest micro-batch goes on."""
    pace: float = 0.0
    """Seconds between the first forwards of two micro-batches, at least; with little room, haste fills it too soon."""
    put_off: int = UNBOUNDED
    """Most W that a device puts off."""
    noise: float = 0.0
    """How far ranks are shaken, in micro-batches."""
    seed: int = 0

    def ranking(self) -> Ranking:
        """Return the ranks of this style."""
        generator = random.Random(self.seed)
        forward_sign = 0.0 if self.forwards_first else 1.0

        def rank(kind: Kind, stage: int, micro_batch: int) -> Rank:
            # a draw for every piece: noise of 1 swaps neighbours, 3 mixes further
            late = micro_batch + self.noise * generator.random()
            forward = kind is Kind.FORWARD
            depth = -stage if forward else stage
            side = forward_sign if forward else 0.5
            return (side, depth, late) if self.deepest_first else (side, late, depth)

        return rank


def styles(tables: Tables, generator: random.Random) -> list[ListStyle]:
    """Return the plain styles: every choice of what goes first, with all of the room."""
    kinds, full = tables.kinds, (tables.numbering.num_stages * tables.numbering.num_micro_batches,) * tables.num_devices
    splits = [True, False] if {Kind.BACKWARD, Kind.WEIGHT_GRAD} <= kinds else [Kind.WEIGHT_GRAD in kinds]
    return [
        ListStyle(forwards, deepest, split, full, seed=generator.randrange(2**30))
        for split in splits
        for forwards in (False, True)
        for deepest in (True, False)
    ]


def shaken(style: ListStyle, tables: Tables, room: Room, *, generator: random.Random) -> ListStyle:
    """Return a style drawn near this one: another pace, fewer W put off, less held along a straight line, ranks shaken."""
    devices = tables.num_devices
    hosted = tables.numbering.num_stages // devices
    top = max([*(most for resource in room if not resource.counts_bytes for most in resource.most), hosted])
    first, last = (generator.randint(hosted, min(top, 3 * devices * hosted) if room else 3 * devices * hosted) for _ in range(2))
    return replace(
        style,
        most=tuple(first + (last - first) * d // max(1, devices - 1) for d in range(devices)),
        pace=generator.choice((0.0, generator.uniform(0.9, 1.5))) * _longest_share(tables),
        put_off=generator.choice((0, 1, 2, UNBOUNDED, UNBOUNDED)),
        noise=generator.choice((0.0, 0.0, 1.0, 3.0)),
        seed=generator.randrange(2**30),
    )


def _longest_share(tables: Tables) -> float:
    """Return how long a micro-batch keeps the device busy that it keeps busy longest."""
    shares = [0.0] * tables.num_devices
    last = Kind.WEIGHT_GRAD if Kind.WEIGHT_GRAD in tables.kinds else Kind.BACKWARD
    for kind in {Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD} & tables.kinds or {Kind.FORWARD, last}:
        for stage, home in enumerate(tables.homes):
            shares[home] += tables.busy(tables.numbering.of(kind, stage, 0))
    return max(shares)


def list_order(tables: Tables, room: Room, style: ListStyle) -> list[Order] | None:
    """Return the orders that a style makes, or None if one micro-batch at a time is too much for the room."""
    return _Lister(tables, room, style).run()


@dataclass(slots=True)
class _Device:
    """What a device knows."""

    stages: list[int]
    free: float = 0.0
    order: Order = field(default_factory=list)
    ready: list[tuple[Rank, int]] = field(default_factory=list)
    """Heap of the work that may start."""
    late: deque[int] = field(default_factory=deque)
    """W that are put off."""
    held: list[int] = field(default_factory=list)
    """Of each resource."""
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
        self._rank = style.ranking()
        self._devices = [_Device(tables.hosted(device), held=[0] * len(room)) for device in range(tables.num_devices)]
        self._room = room
        self._style = style
        self._link_free = [0.0] * (max(tables.link, default=0) + 1)
        self._heap: list[tuple[float, bool, int, int]] = []

    def run(self) -> list[Order] | None:
        """Return the orders, or None."""
        for j in range(self._numbering.num_micro_batches):
            self._arrive(j * self._style.pace, self._numbering.of(Kind.FORWARD, 0, j))
        # at one time arrivals (False) come before wake-ups (True): a device chooses among all that is ready by then
        while self._heap:
            time, is_wake_up, index, number = heapq.heappop(self._heap)
            device = self._devices[index]
            if not is_wake_up:
                heapq.heappush(device.ready, (self._rank(*self._numbering.work(number)), number))
                heapq.heappush(self._heap, (max(time, device.free), True, index, NOTHING))
            elif device.free <= time:
                self._run_best(index, time)
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
        number = None if len(device.late) > self._style.put_off else self._choose(index)
        if number is None:
            if not device.late:
                return
            number = device.late.popleft()
        self._start(index, number, time)

    def _choose(self, index: int) -> int | None:
        """Take the work that ranks first of what is ready and, if it is a forward, fits; None if there is none."""
        device = self._devices[index]
        refused = []
        chosen = None
        while device.ready:
            entry = heapq.heappop(device.ready)
            if self._admits(index, entry[1]):
                chosen = entry[1]
                break
            refused.append(entry)
        for entry in refused:
            heapq.heappush(device.ready, entry)
        return chosen

    def _admits(self, index: int, number: int) -> bool:
        kind, stage, j = self._numbering.work(number)
        if kind is not Kind.FORWARD:
            return True
        device = self._devices[index]
        alive = sum(map(len, device.under_way.values()))
        if alive >= self._style.most[index] and j > device.oldest:
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
            occupied = tables.occupies[number]
            if occupied:
                end = self._link_free[tables.link[number]] = max(end, self._link_free[tables.link[number]]) + occupied
            self._arrive(end + tables.delay[number], reader)

    def _note(self, device: _Device, work: tuple[Kind, int, int]) -> None:
        """Note what is under way, and W to come."""
        kind, stage, j = work
        if kind is Kind.FORWARD:
            device.under_way.setdefault(j, set()).add(stage)
        elif kind is Kind.INPUT_GRAD:
            device.late.append(self._numbering.of(Kind.WEIGHT_GRAD, stage, j))
        else:
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
