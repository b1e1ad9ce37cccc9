"""Orders that follow what the work takes: many candidates under a memory limit, of which the shortest is kept.

Candidates are building blocks, squeezed by the list scheduler, with W where it put them or filled into waits of several
lengths, and the fixed order with its W filled in anew. Blocks are tried on a short mini-batch, so that generation stays
linear in the number of actions; the best are laid out in full and measured as the compiled graph would be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

from schedir.costs.model import CostModel
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.expect import expect
from schedir.ir.program import Program
from schedir.ir.shape import Shape, is_count
from schedir.schedules.blocks import Block
from schedir.schedules.fill import fill_weight_grads
from schedir.schedules.listing import PlacedPipeline, list_orders
from schedir.schedules.makespan import makespan
from schedir.schedules.orders import Orders, orders_of, peak_live, repeated
from schedir.schedules.times import SlotTimes

FINALISTS = 2
"""How many candidates are laid out in full where they are compared with a fixed order."""

SHORT = 3
"""Micro-batches per device of the mini-batch on which candidates are tried, unless that makes too much work."""

SHORT_WORK = 30_000
"""Pieces of work of that mini-batch: beyond, it is shortened, down to one micro-batch per device."""

STRETCHES = 3
"""Periods that are tried of each block: the shortest that fits into memory and those behind it."""

Candidate = Callable[[int], Orders | None]
"""Number of micro-batches -> orders, or None if they do not fit."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the candidates of a schedule have in common."""

    hosted: Sequence[Sequence[int]]
    """Stages of every device."""
    blocks: Sequence[Block]
    """Building blocks."""

    @property
    def num_stages(self) -> int:
        """Stages of all devices."""
        return sum(map(len, self.hosted))

    def pipeline(self, num_micro_batches: int) -> PlacedPipeline:
        """Return the pipeline with so many micro-batches."""
        home = {stage: device for device, stages in enumerate(self.hosted) for stage in stages}
        return PlacedPipeline(len(self.hosted), len(home), num_micro_batches, lambda stage, _: home[stage])


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
    times = costs.work_times(fixed)

    def length(program: Program) -> float:
        return makespan(program, times)

    own = orders_of(fixed)
    choices = [fixed] if peak_live(own) <= limit else []
    slots = SlotTimes.of(times)
    refilled = (fill(own) for fill in fills(slots, limit))
    choices += [repeated(fixed.name, orders, shape, num_stages=fixed.num_stages) for orders in refilled if orders is not None]
    ranked = shortest(fixed.name, layout, shape, candidates=candidates(layout, slots, limit=limit), length=length)
    choices += islice(ranked, FINALISTS)
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


def fills(times: SlotTimes, limit: int) -> list[Callable[[Orders], Orders | None]]:
    """Return ways to add W: into any wait, into waits of half a W, or of a whole one if hand-overs took nothing."""

    def filling(by: SlotTimes, least_wait: float) -> Callable[[Orders], Orders | None]:
        return lambda orders: fill_weight_grads(orders, by, limit=limit, least_wait=least_wait)

    return [filling(times, 0.0), filling(times, 0.5), filling(times.without_transfers(), 1.0)]


def candidates(layout: Layout, times: SlotTimes, *, limit: int) -> Iterator[Candidate]:
    """Yield ways to lay out a mini-batch that hold at most `limit` (stage, micro-batch) pairs on a device."""

    def squeezed(block: Block) -> Candidate:
        @cache
        def build(m: int) -> Orders | None:
            listed = list_orders(layout.pipeline(m), block.rank, times, limit=limit, reserve=True)
            return None if listed is None else listed.orders

        return build

    def filled(pattern: Candidate, fill: Callable[[Orders], Orders | None]) -> Candidate:
        def build(m: int) -> Orders | None:
            orders = pattern(m)
            return None if orders is None else fill(orders)

        return build

    # every list is laid out once (`cache`) and then filled in each of the ways
    stretched = [block.within(limit, layout.hosted) for block in layout.blocks]
    lists = [squeezed(replace(block, period=block.period + more)) for block in stretched for more in range(STRETCHES)]
    yield from lists
    yield from (filled(pattern, fill) for fill in fills(times, limit) for pattern in lists)


def shortest(
    name: str, layout: Layout, shape: Shape, *, candidates: Iterator[Candidate], length: Callable[[Program], Any]
) -> Iterator[Program]:
    """Yield the programs of all candidates that fit, the shortest on a short mini-batch first; each is laid out when asked for."""

    def build(candidate: Candidate, wanted: Shape) -> Program | None:
        orders = candidate(wanted.num_micro_batches)
        return None if orders is None else repeated(name, orders, wanted, num_stages=layout.num_stages)

    short = replace(shape, num_micro_batches=_short(shape, layout.num_stages), num_mini_batches=1)
    tried = [(candidate, build(candidate, short)) for candidate in candidates]
    ranked = sorted(
        ((length(program), number) for number, (_, program) in enumerate(tried) if program is not None),
    )
    # a generator: whoever takes the best alone has only that one laid out
    in_full = (build(tried[number][0], shape) for _, number in ranked)
    return (program for program in in_full if program is not None)


def _short(shape: Shape, num_stages: int) -> int:
    p = shape.num_devices
    return min(shape.num_micro_batches, SHORT * p, max(p, SHORT_WORK // (3 * num_stages)))
