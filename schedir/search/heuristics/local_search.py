"""From an order to a better one: random shifts, most of them of work on the longest path, under late acceptance.

Late acceptance (E. K. Burke and Y. Bykov 2017): a changed order is kept if it is no worse than the present one, or than the
one that was present some steps ago. It has one parameter, and it crosses the plains on which most orders of equal times lie.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from schedir.ir.action import Kind
from schedir.search.heuristics.moves import Rules, draw_joining, draw_shift
from schedir.search.heuristics.walk import Walk
from schedir.search.problem.room import Room
from schedir.search.problem.tables import Tables
from schedir.search.problem.work import Order

MEMORY = 60
"""Steps that late acceptance looks back."""

PATIENCE = 10
"""Steps without a new best, for each piece of work, after which the search starts from another order."""

ALL_DEVICES = 1e-3
"""Weight of the mean over devices beside the longest one: of equally long orders the one with more slack leads on."""

CRITICAL = 0.8
"""Share of shifts that begin at work on the longest path."""

REFRESHED = 25
"""Changes of the order after which its longest path is looked up again."""

JOINED = 0.05
"""Share of steps that make a split backward whole or a whole one split, where both are allowed."""


@dataclass(frozen=True, slots=True)
class Score:
    """What an order is worth; less is better."""

    value: float
    """The objective, in seconds."""
    guide: float
    """The objective and a little of the mean over devices."""


class Scorer:
    """Gives orders their score."""

    def __init__(self, tables: Tables, offsets: Sequence[float]) -> None:
        self.walk = Walk(tables)
        self._offsets = tuple(offsets)

    def score(self, orders: Sequence[Order]) -> Score | None:
        """Return an order's score, or None if it blocks."""
        ends = self.walk.finish(orders)
        if ends is None:
            return None
        shifted = [end + offset for end, offset in zip(ends, self._offsets, strict=True)]
        value = max(shifted)
        return Score(value, value + ALL_DEVICES * sum(shifted) / len(shifted))

    def longest_path(self, orders: Sequence[Order]) -> list[int]:
        """Return the work on the longest path of orders that do not block."""
        ends = self.walk.finish(orders)
        assert ends is not None, "the orders ran before"
        shifted = [end + offset for end, offset in zip(ends, self._offsets, strict=True)]
        return self.walk.critical(orders, shifted.index(max(shifted)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """Orders with their score."""

    orders: list[Order]
    score: Score


class LocalSearch:
    """One search over the orders of one placement; `best` is what it has found."""

    def __init__(self, tables: Tables, room: Room, scorer: Scorer, *, generator: random.Random) -> None:
        self._tables, self._room, self._scorer, self._generator = tables, room, scorer, generator
        self._rules = Rules(tables.numbering)
        self._mixed = {Kind.BACKWARD, Kind.WEIGHT_GRAD} <= tables.kinds

    def run(self, starts: Callable[[], Candidate]) -> Iterator[Candidate]:
        """Yield the present best after every step, for ever; where nothing is found, go on from it, and from `starts`, in turn."""
        best = start = starts()
        for fresh in cycle((False, True)):
            for present in self._climb(start):
                if present.score.guide < best.score.guide:
                    best = present
                yield best
            start = starts() if fresh else best

    def _climb(self, present: Candidate) -> Iterator[Candidate]:
        """Yield the order that is kept after every step, until nothing better is found for long."""
        past = [present.score.guide] * MEMORY
        patience = PATIENCE * sum(map(len, present.orders))
        least, idle, step, changes = present.score.guide, 0, 0, 0
        critical = self._scorer.longest_path(present.orders)
        while idle < patience:
            found = self._step(present, critical)
            # the place in the ring is about to be overwritten: it is the score of MEMORY steps ago
            if found is not None and found.score.guide <= max(present.score.guide, past[step % MEMORY]):
                present = found
                changes += 1
                if changes % REFRESHED == 0 or found.score.guide < least:
                    critical = self._scorer.longest_path(present.orders)
            past[step % MEMORY] = present.score.guide
            idle = 0 if present.score.guide < least else idle + 1
            least = min(least, present.score.guide)
            step += 1
            yield present

    def _step(self, present: Candidate, critical: Sequence[int]) -> Candidate | None:
        """Return a changed order that fits and does not block, or None."""
        change = self._draw(present.orders, critical)
        if change is None:
            return None
        device, order = change
        # room first: it takes one device's order, the evaluation those of all devices
        if not all(resource.fits(order, device) for resource in self._room):
            return None
        orders = [*present.orders]
        orders[device] = order
        score = self._scorer.score(orders)
        return None if score is None else Candidate(orders, score)

    def _draw(self, orders: Sequence[Order], critical: Sequence[int]) -> tuple[int, Order] | None:
        generator = self._generator
        if self._mixed and generator.random() < JOINED:
            return draw_joining(orders, self._tables.numbering, generator)
        if generator.random() < CRITICAL:
            # not randrange, which costs several times as much: this runs at every step
            number = critical[int(generator.random() * len(critical))]
            device = self._tables.homes[self._tables.numbering.work(number)[1]]
            if number not in orders[device]:  # it was joined since
                return None
            place = orders[device].index(number)
        else:
            device = int(generator.random() * len(orders))
            place = int(generator.random() * len(orders[device]))
        shift = draw_shift(orders[device], place, generator)
        if not self._rules.allow(orders[device], shift):
            return None
        return device, shift.applied(orders[device])
