"""Hanayo (Liu et al., SC 2023): a micro-batch runs through the devices in waves, down and up again, 2 x waves stages each.

    p = 3, one wave, m = 3 (one column = one slot, * = update)

        device 0 | 0F0 0F1 0F2 .   .   5F0 5I0 5W0 5F1 5I1 5W1 5F2 5I2 5W2*0I0 0W0 .   0I1 0W1 .   0I2 0W2*
        device 1 | .   1F0 1F1 1F2 4F0 .   4F1 4I0 4W0 4F2 4I1 4W1 1I0 1W0 4I2 4W2*1I1 1W1 .   1I2 1W2*.
        device 2 | .   .   2F0 3F0 2F1 3F1 2F2 3F2 3I0 3W0 2I0 2W0 3I1 3W1 2I1 2W1 3I2 3W2*2I2 2W2*.   .

One copy of the weights, and at the turns a stage hands over to its own device. The order is greedy, the latest stage first,
with at most 2 p x waves activations alive on a device. By default W stands right behind its I, so a gradient leaves before
the weights' share of the work is done; `split_backward=False` keeps backwards whole.
"""

from __future__ import annotations

from schedir.errors import ArgumentError
from schedir.expect import expect
from schedir.ir.program import Program
from schedir.ir.shape import Shape, is_count
from schedir.schedules.layout.listing import backwards_first, forwards_first, list_orders
from schedir.schedules.layout.orders import WHOLE, Order, Way, Ways
from schedir.schedules.layout.times import SlotTimes


def accepts_waves(shape: Shape) -> str | None:
    """Refuse an odd number of stages per device."""
    if shape.stages_per_device % 2:
        return f"a wave passes every device twice, but stages_per_device is {shape.stages_per_device}: use an even number"
    return None


def hanayo(shape: Shape, *, waves: int | None = None, split_backward: bool = True) -> Program:
    """Build Hanayo; `waves` is half of the stages per device. Raises ArgumentError where it is not."""
    expect(split_backward, bool, "split_backward", remedy="give True or False")
    if waves is not None and (not is_count(waves) or 2 * waves != shape.stages_per_device):
        raise ArgumentError(
            f"waves {waves!r} does not go with {shape.stages_per_device} stages per device: a wave passes a device twice"
        )
    p, num_stages = shape.num_devices, shape.num_stages
    period = [*range(p), *reversed(range(p))]
    ways = Ways((Way.straight(period * (num_stages // (2 * p)), shape.num_micro_batches),))
    times = SlotTimes.whole(num_stages, gradient=1.0 if split_backward else 2.0)
    found = [list_orders(ways, first(num_stages), times, limit=num_stages) for first in (forwards_first, backwards_first)]
    best = min((listed for listed in found if listed is not None), key=lambda listed: listed.end)
    if not split_backward:
        return ways.program("hanayo", best.orders, shape, kinds=WHOLE)
    return ways.program("hanayo", [_split(order, num_stages) for order in best.orders], shape)


def _split(order: Order, num_stages: int) -> list[int]:
    """Return the order with I and W in the place of every B."""
    return [half for code in order for half in ((code,) if code < num_stages else (code, code + num_stages))]
