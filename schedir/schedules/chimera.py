"""Chimera (Li and Hoefler, SC 2021): two pipelines in opposite directions over the same devices.

    p = 4, m = 4 (one column = one slot, * = update)

        device 0 | 0F0 0F1 .   3F2 3B2 3F3 3B3 0B0 .   0B1*
        device 1 | .   1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1*.
        device 2 | .   1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3*.
        device 3 | 0F2 0F3 .   3F0 3B0 3F1 3B1 0B2 .   0B3*

Half of the micro-batches go down (stage k on device k), half go up (stage k on device p - 1 - k); every device holds two
stages, one of each copy of the model, and every update sums the gradients of both copies. For F = B and m >= p the makespan
is (2m + p - 2) F, a bubble fraction of (p - 2)/(2m + p - 2) of the whole, with at most p activations alive on a device; with
p = m = 4, F = 1, B = 2 the best makespan is 16, where the fraction would say 15. The order is greedy on slots F = B = 1.
"""

from __future__ import annotations

from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.layout.listing import forwards_first, list_orders
from schedir.schedules.layout.orders import WHOLE, Way, Ways
from schedir.schedules.layout.times import SlotTimes
from schedir.schedules.layout.two_directions import refuse_odd


def accepts_chimera(shape: Shape) -> str | None:
    """Refuse odd p and odd m."""
    return refuse_odd(shape)


def chimera(shape: Shape) -> Program:
    """Build Chimera."""
    p, m = shape.num_devices, shape.num_micro_batches
    ways = Ways((Way(tuple(range(p)), range(m // 2)), Way(tuple(reversed(range(p))), range(m // 2, m))))
    times = SlotTimes.whole(p, backward=1.0, gradient=1.0)
    listed = list_orders(ways, forwards_first(p), times, limit=p)
    assert listed is not None, "p activations are enough"
    return ways.program("chimera", listed.orders, shape, kinds=WHOLE)
