"""Small changes of one device's order that keep what every order must keep.

A part of the order moves past other work. It must not pass work of its own micro-batch and stage (F, then B or I, then W), nor
work of its own kind and stage, with which it takes turns. What waits for other devices is left to the evaluation: an order
that blocks is no order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from schedir.ir.action import Kind
from schedir.search.problem.work import KINDS, Numbering, Order

LONGEST_PART = 4
"""Pieces of work that move together."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A part of an order and how far it moves: later if positive."""

    first: int
    """Place of the part's first piece of work."""
    length: int
    by: int

    def applied(self, order: Order) -> Order:
        """Return the order with the part in its new place."""
        first, last, by = self.first, self.first + self.length, self.by
        part = order[first:last]
        if by > 0:
            return order[:first] + order[last : last + by] + part + order[last + by :]
        return order[: first + by] + part + order[first + by : first] + order[last:]

    def passed(self, order: Order) -> Order:
        """Return the work that the part moves past."""
        last = self.first + self.length
        return order[last : last + self.by] if self.by > 0 else order[max(0, self.first + self.by) : self.first]


class Rules:
    """Which work may pass which."""

    def __init__(self, numbering: Numbering) -> None:
        stages, m = numbering.num_stages, numbering.num_micro_batches
        # B and I of a stage take turns with each other, F and W only among themselves; rows are (kind, stage), as numbers have them
        of_row = [(kind is Kind.FORWARD, kind is Kind.WEIGHT_GRAD, stage) for kind in KINDS for stage in range(stages)]
        self._turn = [of_row.index(of_row[row]) for row in range(len(of_row)) for _ in range(m)]
        self._item = [row % stages * m + j for row in range(len(of_row)) for j in range(m)]

    def allow(self, order: Order, shift: Shift) -> bool:
        """Tell whether a shift stays within the order and passes nothing that it must not."""
        if shift.first + shift.by < 0 or shift.first + shift.length + shift.by > len(order):
            return False
        turn, item = self._turn, self._item
        part = order[shift.first : shift.first + shift.length]
        turns, items = {turn[number] for number in part}, {item[number] for number in part}
        return not any(turn[number] in turns or item[number] in items for number in shift.passed(order))


def draw_shift(order: Order, place: int, generator: random.Random) -> Shift:
    """Draw a shift of the work at `place`, or of a part that begins or ends with it; short ones are likelier."""
    length = 1 if generator.random() < 0.6 else generator.randint(2, LONGEST_PART)
    length = min(length, len(order))
    # on either side of the place, so that the work there leads its part as often as it ends it
    first = place if generator.random() < 0.5 else place - length + 1
    first = max(0, min(first, len(order) - length))
    by = 1
    while generator.random() < 0.6 and by < len(order):
        by += 1
    return Shift(first, length, by if generator.random() < 0.5 else -by)


def draw_joining(orders: Sequence[Order], numbering: Numbering, generator: random.Random) -> tuple[int, Order]:
    """Draw a device and its order with one backward made whole that was split, or split that was whole."""
    device = generator.randrange(len(orders))
    letters = [numbering.work(number)[:2] for number in orders[device]]
    places = [at for at, (kind, _) in enumerate(letters) if kind in {Kind.BACKWARD, Kind.INPUT_GRAD}]
    at = generator.choice(places)
    kind, stage = letters[at]
    if kind is Kind.BACKWARD:
        letters[at : at + 1] = [(Kind.INPUT_GRAD, stage), (Kind.WEIGHT_GRAD, stage)]
    else:
        # W of a stage take turns, so which of them goes does not matter: the next one changes the order least
        letters.pop(letters.index((Kind.WEIGHT_GRAD, stage), at))
        letters[at] = (Kind.BACKWARD, stage)
    return device, numbering.in_turn(letters)
