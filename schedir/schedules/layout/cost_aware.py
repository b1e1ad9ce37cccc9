"""Orders that follow what the work takes: many candidates under a memory limit, of which the shortest is kept.

Candidates are building blocks, squeezed by the list scheduler, with W where it put them or filled into waits of several
lengths, and the fixed order with its W filled in anew. Blocks are tried on a short mini-batch; the best are laid out in full and
measured as the compiled graph would be. Each pass is linear, up to the logarithm of the devices, and their number is bounded: of
each block STRETCHES lists, each filled in three ways and all measured, on at most SHORT micro-batches per device, then FINALISTS
of them in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

from schedir.costs.model import CostModel
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect
from schedir.ir.program import Program
from schedir.ir.shape import Shape, is_count
from schedir.schedules.layout.blocks import Block
from schedir.schedules.layout.fill import fill_weight_grads
from schedir.schedules.layout.listing import list_orders
from schedir.schedules.layout.makespan import makespan
from schedir.schedules.layout.orders import Order, Way, Ways, codes_of, peak_live
from schedir.schedules.layout.times import SlotTimes

FINALISTS = 2
"""How many candidates are laid out in full where they are compared with a fixed order."""

SHORT = 3
"""Micro-batches per device of the mini-batch on which candidates are tried, unless that makes too much work."""

SHORT_WORK = 30_000
"""Pieces of work of that mini-batch: beyond, it is shortened, down to one micro-batch per device."""

STRETCHES = 3
"""Periods that are tried of each block: the shortest that fits into memory and those behind it."""

Candidate = Callable[[int], list[Order] | None]
"""Number of micro-batches -> orders, or None if they do not fit."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the candidates of a schedule have in common."""

    hosted: Sequence[Sequence[int]]
    """Stages of every device."""
    blocks: Sequence[Block]
    """Building blocks."""

    @property
    def homes(self) -> tuple[int, ...]:
        """Device of every stage."""
        home = {stage: device for device, stages in enumerate(self.hosted) for stage in stages}
        return tuple(home[stage] for stage in range(len(home)))

    def ways(self, num_micro_batches: int) -> Ways:
        """Return the way of so many micro-batches."""
        return Ways((Way.straight(self.homes, num_micro_batches),))

    def program(self, name: str, orders: Sequence[Order], shape: Shape) -> Program:
        """Return the program of orders."""
        return self.ways(shape.num_micro_batches).program(name, orders, shape)


def follow_costs(fixed: Program, layout: Layout, shape: Shape, *, costs: CostModel, limit: int) -> Program:
    """Return the shortest program under `costs` that holds at most `limit` (stage, micro-batch) pairs on a device.

    It is never longer than `fixed`, if that fits. Raises RefusedError where the limit is below the stages of a device, and
    what the costs raise if they do not fit the program.
    """
    expect(costs, CostModel, "costs", remedy="give UniformCosts, TableCosts or what load_costs returns")
    least = max(map(len, layout.hosted))
    if limit < least:
        raise RefusedError(
            f"{fixed.name} holds at least {least} activations on a device, but activation_limit is {limit}: give at least {least}"
        )
    # of the fixed order: all candidates have the same work, so the same times, and need no compiling
    times = costs.work_times(fixed)

    def length(program: Program) -> float:
        return makespan(program, times)

    own = codes_of(fixed)
    # first in the list, so that of equally long orders the fixed one, which papers know, is taken
    choices = [fixed] if peak_live(own, fixed.num_stages) <= limit else []
    slots = SlotTimes.of(times)
    refilled = (fill(own) for fill in fills(layout, slots, limit))
    choices += [layout.program(fixed.name, orders, shape) for orders in refilled if orders is not None]
    best = shortest(fixed.name, layout, shape, candidates=candidates(layout, slots, limit=limit), length=length)
    choices += islice(best, FINALISTS)
    return min(choices, key=length)


def check_limit(activation_limit: int | None, costs: CostModel | None, default: int) -> int:
    """Return the limit that holds; raise ArgumentError for one that is no count or has no costs to go with."""
    if activation_limit is None:
        return default
    if costs is None:
        raise ArgumentError(f"activation_limit {activation_limit} chooses an order by costs: give costs too, or leave it out")
    if not is_count(activation_limit):
        raise ArgumentError(f"activation_limit {activation_limit!r} must be an integer of at least 1")
    return activation_limit


def fills(layout: Layout, times: SlotTimes, limit: int) -> list[Callable[[Sequence[Order]], list[list[int]] | None]]:
    """Return ways to add W: into any wait, into waits of half a W, or of a whole one if hand-overs took nothing."""

    def filling(by: SlotTimes, least_wait: float) -> Callable[[Sequence[Order]], list[list[int]] | None]:
        return lambda orders: fill_weight_grads(orders, layout.homes, by, limit=limit, least_wait=least_wait)

    return [filling(times, 0.0), filling(times, 0.5), filling(times.without_transfers(), 1.0)]


def candidates(layout: Layout, times: SlotTimes, *, limit: int) -> list[Candidate]:
    """Return ways to lay out a mini-batch that hold at most `limit` (stage, micro-batch) pairs on a device."""

    def squeezed(block: Block) -> Candidate:
        @cache
        def build(m: int) -> list[Order] | None:
            listed = list_orders(layout.ways(m), block.priority, times, limit=limit, reserve=True)
            return None if listed is None else [*listed.orders]

        return build

    def filled(pattern: Candidate, fill: Callable[[Sequence[Order]], list[list[int]] | None]) -> Candidate:
        def build(m: int) -> list[Order] | None:
            orders = pattern(m)
            found = None if orders is None else fill(orders)
            return None if found is None else [*found]

        return build

    # every list is laid out once (`cache`) and then filled in each of the ways
    stretched = [block.within(limit, layout.hosted) for block in layout.blocks]
    lists = [squeezed(replace(block, period=block.period + more)) for block in stretched for more in range(STRETCHES)]
    return [*lists, *(filled(pattern, fill) for fill in fills(layout, times, limit) for pattern in lists)]


def shortest(
    name: str, layout: Layout, shape: Shape, *, candidates: Sequence[Candidate], length: Callable[[Program], Any]
) -> Iterator[Program]:
    """Yield the programs of all candidates that fit, the shortest on a short mini-batch first; each is laid out when asked for."""

    def build(candidate: Candidate, wanted: Shape) -> Program | None:
        orders = candidate(wanted.num_micro_batches)
        return None if orders is None else layout.program(name, orders, wanted)

    short = replace(shape, num_micro_batches=min(shape.num_micro_batches, short_mini_batch(shape)), num_mini_batches=1)
    tried = [(candidate, build(candidate, short)) for candidate in candidates]
    by_length = sorted((length(program), number) for number, (_, program) in enumerate(tried) if program is not None)
    # a generator: whoever takes the best alone has only that one laid out
    in_full = (build(tried[number][0], shape) for _, number in by_length)
    return (program for program in in_full if program is not None)


def short_mini_batch(shape: Shape) -> int:
    """Return the micro-batches of the mini-batch on which candidates are tried, unless there are fewer."""
    p = shape.num_devices
    return min(SHORT * p, max(p, SHORT_WORK // (3 * shape.num_stages)))
