"""How a list scheduler chooses: what goes first, how much each device holds, at what pace micro-batches enter."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Protocol

from schedir.ir.action import Kind
from schedir.search.problem.room import Room
from schedir.search.problem.tables import Tables

Priority = tuple[float, ...]

UNBOUNDED = 2**30


class Priorities(Protocol):
    """Gives forwards and backwards that are ready their priority; the lowest runs."""

    def __call__(self, kind: Kind, stage: int, micro_batch: int) -> Priority:
        """Return anything that sorts."""
        ...


@dataclass(frozen=True, slots=True)
class ListStyle:
    """How one run of the list scheduler chooses; drawn at random, many of them make many orders."""

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
    """How far priorities are shaken, in micro-batches."""
    seed: int = 0

    def priorities(self) -> Priorities:
        """Return the priorities of this style."""
        generator = random.Random(self.seed)
        # backwards are 0.5: forwards come all before or all behind them
        forward_sign = 0.0 if self.forwards_first else 1.0

        def priority(kind: Kind, stage: int, micro_batch: int) -> Priority:
            # a draw for every piece: noise of 1 swaps neighbours, 3 mixes further
            late = micro_batch + self.noise * generator.random()
            forward = kind is Kind.FORWARD
            # furthest on its way first: forwards of the last stage, backwards of the first, which end a micro-batch
            depth = -stage if forward else stage
            side = forward_sign if forward else 0.5
            return (side, depth, late) if self.deepest_first else (side, late, depth)

        return priority


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
    """Return a style drawn near this one: another pace, fewer W put off, less held along a straight line, priorities shaken."""
    devices = tables.num_devices
    hosted = tables.numbering.num_stages // devices
    # a limit of bytes says nothing about numbers of micro-batches
    top = max([*(most for resource in room if not resource.counts_bytes for most in resource.most), hosted])
    first, last = (generator.randint(hosted, min(top, 3 * devices * hosted) if room else 3 * devices * hosted) for _ in range(2))
    return replace(
        style,
        # a line from the first device to the last: 1F1B's p - k and GPipe's m are such lines
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
