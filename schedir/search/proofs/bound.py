"""What no order can beat, without a search.

Every piece of work has a head (what must come before it: the chain of stages, earlier micro-batches of its stage, and, where
a stage's activations are limited to n, the release of the n-th micro-batch before it) and a tail (what must come behind it).
On each device the best that its work can do with these heads and tails, if it could be interrupted, is Jackson's schedule:
always the ready work with the longest tail (J. R. Jackson 1955; the bound is J. Carlier's, 1982). The longest device bounds all.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from schedir.ir.action import Kind
from schedir.search.problem.room import Room
from schedir.search.problem.tables import NOTHING, Tables

_BACKWARDS = (Kind.BACKWARD, Kind.INPUT_GRAD)


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of work in the relaxed problem: as short as the kinds that orders may consist of let it be."""

    number: int
    before: float
    work: float
    behind: float


def lower_bound(tables: Tables, room: Room, offsets: Sequence[float]) -> float:
    """Return a value in seconds that no order's objective is below.

    The objective is the largest, over devices, of (end of its last work + the device's offset).
    """
    relaxed = _Relaxed(tables, room)
    heads, tails = relaxed.heads(), relaxed.tails(offsets)
    rows: list[list[tuple[float, float, float]]] = [[] for _ in range(tables.num_devices)]
    for number, piece in relaxed.pieces.items():
        busy = piece.before + piece.work + piece.behind
        device = tables.homes[tables.numbering.work(number)[1]]
        rows[device].append((heads[number] - piece.before, busy, tails[number] - piece.work - piece.behind))
    return max(map(jackson, rows))


def first_starts(tables: Tables) -> list[float]:
    """Return when each device's first work starts: it is the forward of micro-batch 0 on its first stage, whatever the order.

    A timeline starts with the work itself: the dispatch gap before it is in no makespan and no span.
    """
    starts = [0.0] * tables.num_devices
    arrival = 0.0
    for stage in range(tables.numbering.num_stages):
        number = tables.numbering.of(Kind.FORWARD, stage, 0)
        device = tables.homes[stage]
        if stage == tables.hosted(device)[0]:
            starts[device] = arrival + (tables.gap if tables.work[number] > 0 else 0.0)
        arrival += tables.before[number] + tables.work[number] + tables.occupies[number] + tables.delay[number]
    return starts


def starts_at_once(tables: Tables) -> bool:
    """Tell whether the first forward of every device takes time, so that its span begins with it; else that is up to the order."""
    firsts = (tables.numbering.of(Kind.FORWARD, tables.hosted(device)[0], 0) for device in range(tables.num_devices))
    return all(tables.work[number] > 0 for number in firsts)


def most_busy(tables: Tables, room: Room) -> float:
    """Return how long the fullest device is busy, in seconds, but for the gap before its first work: no span is shorter."""
    busy = [0.0] * tables.num_devices
    for number, piece in _Relaxed(tables, room).pieces.items():
        busy[tables.homes[tables.numbering.work(number)[1]]] += piece.before + piece.work + piece.behind
    return max(0.0, max(busy) - tables.gap)


def jackson(rows: Sequence[tuple[float, float, float]]) -> float:
    """Return the shortest span of one machine that may interrupt its work; rows are (head, time, tail)."""
    waiting = sorted(rows)
    ready: list[tuple[float, float]] = []
    now, span, place = 0.0, 0.0, 0
    while ready or place < len(waiting):
        # the machine stands idle up to the next head
        if not ready:
            now = max(now, waiting[place][0])
        while place < len(waiting) and waiting[place][0] <= now:
            heapq.heappush(ready, (-waiting[place][2], waiting[place][1]))
            place += 1
        tail, left = heapq.heappop(ready)
        # new work may have a longer tail: only then does it pay to interrupt
        if place < len(waiting) and now + left > waiting[place][0]:
            heapq.heappush(ready, (tail, left - (waiting[place][0] - now)))
            now = waiting[place][0]
        else:
            now += left
            # `tail` is a negative number, by which the heap gives the longest first
            span = max(span, now - tail)
    return span


class _Relaxed:
    """The pieces, and the chains that hold for every order in which stages take their micro-batches in turn."""

    def __init__(self, tables: Tables, room: Room) -> None:
        self._tables, self._numbering = tables, tables.numbering
        self._split = Kind.WEIGHT_GRAD in tables.kinds
        self._mixed = self._split and Kind.BACKWARD in tables.kinds
        self._backward = Kind.INPUT_GRAD if self._split else Kind.BACKWARD
        self._last = Kind.WEIGHT_GRAD if self._split else Kind.BACKWARD
        self._most = [_most_alive(tables, room, stage) for stage in range(tables.numbering.num_stages)]
        # heads go along this once and tails back along it once: no chain leads from a later entry to an earlier one
        self._sequence = [entry for j in range(self._numbering.num_micro_batches) for entry in self._of_micro_batch(j)]
        self.pieces = {number: self._piece(number) for number in self._sequence}

    def _of_micro_batch(self, j: int) -> list[int]:
        """Return the work on a micro-batch so that everything stands behind what it waits for."""
        stages = range(self._numbering.num_stages)
        backward = [self._numbering.of(self._backward, stage, j) for stage in reversed(stages)]
        late = [self._numbering.of(self._last, stage, j) for stage in stages] if self._split else []
        return [*(self._numbering.of(Kind.FORWARD, stage, j) for stage in stages), *backward, *late]

    def _piece(self, number: int) -> Piece:
        """Return the work; where backwards may be whole or split, the shorter of both."""
        tables = self._tables
        kind, stage, j = self._numbering.work(number)
        before, work, behind = tables.before[number], tables.work[number], tables.behind[number]
        if self._mixed and kind is not Kind.FORWARD:
            whole = self._numbering.of(Kind.BACKWARD, stage, j)
            half = self._numbering.of(Kind.INPUT_GRAD, stage, j)
            if kind is Kind.INPUT_GRAD:
                before, work = min(before, tables.before[whole]), min(work, tables.work[whole])
            else:
                # what is left of a whole backward when I is taken off: W stands for no less
                spared = (
                    tables.busy(whole) - tables.behind[whole] - min(tables.before[half] + tables.work[half], tables.busy(whole))
                )
                work, behind = min(work, max(0.0, spared)), min(behind, tables.behind[whole])
        return Piece(number, before, work, behind)

    def heads(self) -> dict[int, float]:
        """Return the earliest time at which each piece's work proper can begin."""
        begin: dict[int, float] = {}
        for number in self._sequence:
            piece = self.pieces[number]
            # R that needs no gradient runs while the input of the work is still on its way
            found = max((begin[source] + lag for source, lag in self._sources(number)), default=0.0)
            begin[number] = max(found, piece.before)
        return begin

    def tails(self, offsets: Sequence[float]) -> dict[int, float]:
        """Return the least time from each piece's begin to the end of the objective."""
        tail = {
            number: piece.work + piece.behind + offsets[self._tables.homes[self._numbering.work(number)[1]]]
            for number, piece in self.pieces.items()
        }
        for number in reversed(self._sequence):
            for source, lag in self._sources(number):
                tail[source] = max(tail[source], lag + tail[number])
        return tail

    def _sources(self, number: int) -> list[tuple[int, float]]:
        """Return what a piece waits for, with the time from the begin of that to its own."""
        kind, stage, j = self._numbering.work(number)
        found = self._on_device(kind, stage, j)
        waiting = self.pieces[number].before
        chain = [(source, self._busy(source) + waiting) for source in found]
        if kind is Kind.WEIGHT_GRAD:
            return chain
        wanted = self._tables.need[number]
        if wanted != NOTHING:
            maker = self._maker(kind, stage, j)
            chain.append((maker, self.pieces[maker].work + self._tables.occupies[maker] + self._tables.delay[maker]))
        return chain

    def _on_device(self, kind: Kind, stage: int, j: int) -> list[int]:
        """Return work of the same device that must have ended; where some backwards are whole, W do not take turns."""
        of = self._numbering.of
        found = [of(kind, stage, j - 1)] if j and not (self._mixed and kind is Kind.WEIGHT_GRAD) else []
        if kind is Kind.FORWARD and j >= self._most[stage] and not self._mixed:
            found.append(of(self._last, stage, j - self._most[stage]))
        if kind in _BACKWARDS:
            found.append(of(Kind.FORWARD, stage, j))
        if kind is Kind.WEIGHT_GRAD:
            found.append(of(Kind.INPUT_GRAD, stage, j))
        return found

    def _maker(self, kind: Kind, stage: int, j: int) -> int:
        if kind is Kind.FORWARD:
            return self._numbering.of(kind, stage - 1, j)
        top = stage == self._numbering.num_stages - 1
        return self._numbering.of(Kind.FORWARD, stage, j) if top else self._numbering.of(self._backward, stage + 1, j)

    def _busy(self, number: int) -> float:
        return self.pieces[number].work + self.pieces[number].behind


def _most_alive(tables: Tables, room: Room, stage: int) -> int:
    """Return how many micro-batches of a stage can be alive: each of them is alive on its device's earlier stages, too."""
    numbering = tables.numbering
    most = numbering.num_micro_batches
    device = tables.homes[stage]
    for resource in room:
        least = 0
        for lower in tables.hosted(device):
            if lower <= stage:
                half = numbering.of(Kind.INPUT_GRAD, lower, 0) if Kind.INPUT_GRAD in tables.kinds else None
                least += resource.keeps(numbering.of(Kind.FORWARD, lower, 0), half)[1]
        if least > 0:
            most = min(most, max(1, resource.most[device] // least))
    return most
