"""Orders of one mini-batch as numbers, the ways that micro-batches take, and the program that repeats them.

Within an order the forwards of a stage run micro-batch after micro-batch, and so do its backwards and its weight gradients. So
an order need not say the micro-batch: it is a list of codes,

    code = side x places + place        side: 0 forward, 1 backward (or input gradient), 2 weight gradient

and the k-th time that a code stands in it means the k-th micro-batch of its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.entries import Entries
from schedir.ir.program import Program
from schedir.ir.repetition import repeat_program
from schedir.ir.shape import Shape

Order = Sequence[int]
"""What one device runs: codes."""

WHOLE = (Kind.FORWARD, Kind.BACKWARD)
"""What the sides are where backwards are whole."""
SPLIT = (Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)
"""What they are where backwards are split."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way through the devices, and the micro-batches that take it; a device may be passed several times."""

    homes: tuple[int, ...]
    """Device of every stage."""
    micro_batches: range

    @classmethod
    def straight(cls, homes: Sequence[int], num_micro_batches: int) -> Way:
        """Return the way that all micro-batches take."""
        return cls(tuple(homes), range(num_micro_batches))


@dataclass(frozen=True, slots=True)
class Ways:
    """All ways, each over the same stages; the places of a way are its stages, those of the next stand behind them."""

    all: tuple[Way, ...]

    @property
    def num_stages(self) -> int:
        """Stages of each way."""
        return len(self.all[0].homes)

    @property
    def homes(self) -> tuple[int, ...]:
        """Device of every place."""
        return tuple(home for way in self.all for home in way.homes)

    @property
    def counts(self) -> tuple[int, ...]:
        """Micro-batches of every place."""
        return tuple(len(way.micro_batches) for way in self.all for _ in way.homes)

    def columns(self, orders: Sequence[Order], kinds: Sequence[Kind]) -> tuple[Ints, Ints, Ints]:
        """Return kind, stage and micro-batch of all work, device after device; `kinds` are those of the sides."""
        places = len(self.homes)
        code = np.concatenate([np.asarray(order, np.int32) for order in orders])
        side, place = np.divmod(code, places)
        first = np.array([way.micro_batches.start for way in self.all])[place // self.num_stages]
        return np.array(kinds, np.int8)[side], place % self.num_stages, first + turns_of(code)

    def program(self, name: str, orders: Sequence[Order], shape: Shape, *, kinds: Sequence[Kind] = SPLIT) -> Program:
        """Return the program that runs the orders for every mini-batch."""
        once = Program.from_entries(
            name,
            Entries(self.columns(orders, kinds), list(map(len, orders))),
            num_stages=self.num_stages,
            num_micro_batches=shape.num_micro_batches,
        )
        return repeat_program(once, shape.num_mini_batches)


def turns_of(code: Ints) -> Ints:
    """Return how often each code has stood before."""
    #   code     3 1 3 3        sorted  1 3 3 3, each less where its like begin: 0, 0 1 2
    #   turn     0 0 1 2
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    turn = np.empty(len(code), np.int64)
    turn[order] = np.arange(len(code)) - np.searchsorted(ordered, ordered)
    return turn


def codes_of(program: Program) -> list[Order]:
    """Return the orders of mini-batch 0 of a program that repeats it; stages are on one device each, micro-batches in turn."""
    side = np.array([{Kind.FORWARD: 0, Kind.WEIGHT_GRAD: 2}.get(kind, 1) for kind in Kind])
    codes = (side[program.kind] * program.num_stages + program.stage).tolist()
    starts = program.device_start.tolist()
    return [codes[start : start + (end - start) // program.num_mini_batches] for start, end in pairwise(starts)]


def peak_live(orders: Sequence[Order], num_places: int) -> int:
    """Return the most (stage, micro-batch) pairs alive on a device, from the start of F to the end of W, of split backwards."""
    change = np.array([1, 0, -1])
    return max(int(np.cumsum(change[np.asarray(order, np.int32) // num_places]).max(initial=0)) for order in orders)
