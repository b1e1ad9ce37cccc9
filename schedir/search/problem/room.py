"""What a device may hold, and what every piece of work takes of it and gives back: counted in activations, and in bytes.

Of bytes an order alone tells what the stages of a device keep for the whole run and what activations and work in progress
take; buffers of transfers depend on times. So the exact ledger has the last word, and `tightened` leaves room for what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.search.problem.problem import Problem
from schedir.search.problem.tables import Tables
from schedir.search.problem.work import KINDS, Order


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One thing that devices have so much of."""

    most: tuple[int, ...]
    """Of each device."""
    takes: list[int]
    """By number of work: from its start."""
    gives: list[int]
    """By number of work: at its end."""
    counts_bytes: bool = False
    """Else activations."""

    def fits(self, order: Order, device: int) -> bool:
        """Tell whether an order never holds more than there is."""
        held, most, takes, gives = 0, self.most[device], self.takes, self.gives
        for number in order:
            # what work takes counts while it runs, before it gives anything back: that is when most is held
            held += takes[number]
            if held > most:
                return False
            held -= gives[number]
        return True

    def keeps(self, forward: int, input_grad: int | None) -> tuple[int, int]:
        """Return what a micro-batch keeps from its forward on, and what of it till the end of its backward.

        The rest is given back by the input gradient, where there is one.
        """
        kept = self.takes[forward] - self.gives[forward]
        late = kept if input_grad is None else kept + self.takes[input_grad] - self.gives[input_grad]
        # what R makes again is held behind I, but not from F on
        return kept, min(kept, late)


Room = tuple[Resource, ...]
"""All that is limited."""


def fits(room: Room, orders: Sequence[Order]) -> bool:
    """Tell whether every device's order fits."""
    return all(resource.fits(order, device) for resource in room for device, order in enumerate(orders))


def room_of(problem: Problem, tables: Tables, limit_bytes: Sequence[int] | None) -> Room:
    """Return what is limited; `limit_bytes` are those of each device, None where bytes are not known or not limited."""
    found: list[Resource] = []
    live = problem.limits.live(problem.num_devices)
    if live is not None:
        found.append(_activations(tables, live))
    if limit_bytes is not None and tables.units is not None:
        found.append(_bytes(tables, limit_bytes))
    return tuple(found)


def tightened(resource: Resource, excess: Sequence[int]) -> Resource:
    """Return the resource with less of it on each device."""
    return replace(resource, most=tuple(most - over for most, over in zip(resource.most, excess, strict=True)))


def _activations(tables: Tables, live: tuple[int, ...]) -> Resource:
    each = np.ones((tables.numbering.num_stages, tables.numbering.num_micro_batches), np.int64)
    takes = {Kind.FORWARD: each}
    gives = {Kind.BACKWARD: each, Kind.WEIGHT_GRAD: each}
    return Resource(live, _by_number(takes, each), _by_number(gives, each))


def _bytes(tables: Tables, limit_bytes: Sequence[int]) -> Resource:
    """Count as `schedir.lowering.memory` does: activations, what R makes again, work in progress."""
    units = tables.units
    assert units is not None, "there are bytes"
    scale = units.micro_batch_scale
    m = tables.numbering.num_micro_batches

    def each(values: Floats) -> Ints:
        sized = np.outer(values, np.ones(m) if scale is None else scale)
        return np.rint(sized).astype(np.int64)

    again = np.where(tables.again, each(units.recomputed), 0)
    kept = np.where(tables.again, each(units.boundary), each(units.activations))
    # in whole bytes, as the ledger rounds them: sums of floats would let in what it refuses
    working = each(units.workspace)
    takes = dict.fromkeys(KINDS, working) | {Kind.FORWARD: working + kept}
    takes |= dict.fromkeys((Kind.BACKWARD, Kind.INPUT_GRAD), working + again)
    freed = np.where(tables.again, each(_sum(units.freed_boundary, units.freed_recomputed)), each(_sum(units.freed_activations)))
    # B gives back all that is held by then; of a split one I gives a part, W the rest
    whole = working + again + kept
    gives = dict.fromkeys(KINDS, working) | {
        Kind.BACKWARD: whole,
        Kind.INPUT_GRAD: working + freed,
        Kind.WEIGHT_GRAD: whole - freed,
    }
    # no order changes that, so it comes off the limit at once
    for_good = units.weights + units.gradients + units.optimizer
    most = tuple(int(limit) - sum(round(for_good[stage]) for stage in tables.hosted(d)) for d, limit in enumerate(limit_bytes))
    return Resource(most, _by_number(takes, working), _by_number(gives, working), counts_bytes=True)


def _sum(*parts: Floats | None) -> Floats:
    """Return what stages give back early; 0 where nothing is said."""
    return sum((part for part in parts if part is not None), np.zeros(1))


def _by_number(parts: dict[Kind, Ints], like: Ints) -> list[int]:
    rows = [parts.get(kind, np.zeros_like(like)) for kind in KINDS]
    values: list[int] = np.stack(rows).ravel().tolist()
    return values
