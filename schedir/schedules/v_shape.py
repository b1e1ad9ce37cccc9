"""ZB-V and V-Half (Qi et al., Pipeline Parallelism with Controllable Memory, 2024): two stages per device in a V.

Device d hosts stages d ("near") and 2p - 1 - d ("far"), so the loss stands where the input stands and memory is even over
devices.

    p = 3      device 0   stages 0 and 5        down  0 1 2
               device 1   stages 1 and 4        up    5 4 3
               device 2   stages 2 and 3

    zb-v, p = 2, m = 4 (one column = one slot, * = update)

        device 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3*0I2 0W2 0I3 0W3*.
        device 1 | .   1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3*1W3*

    v-half, p = 2, m = 4

        device 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 3W1 0F3 0W0 0I1 0W1 3F2 3I2 3W2 3F3 3I3 0I2 3W3*0W2 0I3 0W3*.
        device 1 | .   1F0 2F0 1F1 2F1 2I0 1I0 2W0 1F2 2I1 1I1 1W0 2F2 2W1 1F3 1W1 2F3 2I2 1I2 2W2 2I3 1I3 1W2 2W3*1W3*

| schedule | live (stage, micro-batch) pairs per device | bubble for F = I = W                              |
|----------|--------------------------------------------|---------------------------------------------------|
| zb-v     | 2p                                         | none in a device's span for m >= 2p - 1 [counted] |
| v-half   | 2 ((p + 2) // 2)                           | about half of 1F1B's                              |

zb-v is a closed pattern (`zb_v_pattern`), v-half a building block stretched until it fits into its memory, then squeezed,
with W in the gaps. Given costs, both follow what the work really takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.costs.model import CostModel
from schedir.costs.uniform import UniformCosts
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.layout.blocks import vee
from schedir.schedules.layout.cost_aware import Layout, candidates, check_limit, follow_costs, short_mini_batch, shortest
from schedir.schedules.layout.fill import fill_weight_grads
from schedir.schedules.layout.makespan import makespan
from schedir.schedules.layout.orders import Order, turns_of
from schedir.schedules.layout.times import SlotTimes

HAND_OVER = 0.1
"""Slots that a hand-over takes where orders are laid out without costs, so that they do not count on it taking nothing."""

# fmt: off
V_HALF_BEST = (
    0, 0, 6, 10, 7, 6, 7, 10, 6, 9, 10, 8, 7, 9, 10, 9, 11, 11, 6, 6, 9, 9, 9, 10, 9, 10, 9, 11, 10, 10, 9, 10,
    9, 10, 9, 9, 6, 10, 9, 11, 9, 9, 9, 9, 9, 11, 9, 9, 9, 11, 9, 9, 9, 9, 9, 9, 11, 9, 9, 9, 9, 9, 10, 10,
)
# fmt: on
"""By devices, from 1: which of `candidates` is shortest on unit slots with many micro-batches. A test finds some of them anew."""


def accepts_v(shape: Shape) -> str | None:
    """Refuse other than two stages per device."""
    if shape.stages_per_device != 2:
        return f"its V has two stages per device, but stages_per_device is {shape.stages_per_device}: leave it out"
    return None


def zb_v(shape: Shape, *, costs: CostModel | None = None, activation_limit: int | None = None) -> Program:
    """Build ZB-V as a fixed order, or by `costs` if they are given and that is shorter.

    `activation_limit` is the most (stage, micro-batch) pairs alive on a device, 2p if not given; it goes with costs. Raises
    ArgumentError, RefusedError where nothing fits.
    """
    p, m = shape.num_devices, shape.num_micro_batches
    limit = check_limit(activation_limit, costs, default=2 * p)
    orders = zb_v_pattern(p, m)
    layout = _blocks(p)
    if m < 2 * p - 1:  # gaps remain
        orders = _refilled(orders, layout, limit=2 * p)
    fixed = layout.program("zb-v", orders, shape)
    if costs is None:
        return fixed
    return follow_costs(fixed, layout, shape, costs=costs, limit=limit)


def _refilled(orders: Sequence[Order], layout: Layout, *, limit: int) -> list[Order]:
    found = fill_weight_grads(orders, layout.homes, SlotTimes.split(len(layout.homes)), limit=limit)
    assert found is not None, "W earlier needs no more memory"
    return [*found]


def v_half(shape: Shape, *, costs: CostModel | None = None, activation_limit: int | None = None) -> Program:
    """Build V-Half, options as for ZB-V; its `activation_limit` is 2 ((p + 2) // 2) if not given."""
    p = shape.num_devices
    usual = 2 * ((p + 2) // 2)
    limit = check_limit(activation_limit, costs, default=usual)
    fixed = _on_unit_slots("v-half", _blocks(p), shape, limit=usual)
    if costs is None:
        return fixed
    return follow_costs(fixed, _blocks(p), shape, costs=costs, limit=limit)


def _hosted(num_devices: int) -> list[tuple[int, int]]:
    return [(device, 2 * num_devices - 1 - device) for device in range(num_devices)]


def _blocks(num_devices: int) -> Layout:
    """Return the layout of the block whose pieces never fall on one slot, whatever p is."""
    return Layout(_hosted(num_devices), blocks=(vee(num_devices, legs=(3, 3, 3, 3), turns=(1, 1, 1)),))


def _on_unit_slots(name: str, layout: Layout, shape: Shape, *, limit: int) -> Program:
    """Return the program that is shortest for F = I = W = 1; of equal ones that which suffers least from hand-overs.

    From `short_mini_batch` on, that is always the same candidate, which is known for usual numbers of devices.
    """
    known = candidates(layout, SlotTimes.split(len(layout.homes), HAND_OVER), limit=limit)
    p, m = shape.num_devices, shape.num_micro_batches
    if p <= len(V_HALF_BEST) and m >= short_mini_batch(shape):
        orders = known[V_HALF_BEST[p - 1]](m)
        assert orders is not None, "it fitted a short mini-batch, and so it fits a longer one"
        return layout.program(name, orders, shape)
    free, late = UniformCosts(transfer=0.0), UniformCosts(transfer=HAND_OVER)

    def length(program: Program) -> tuple[float, float]:
        return makespan(program, free.work_times(program)), makespan(program, late.work_times(program))

    return next(shortest(name, layout, shape, candidates=known, length=length))


def zb_v_pattern(num_devices: int, num_micro_batches: int) -> list[Order]:
    """Return ZB-V's order on every device d of p.

    1  near F                                             2(p - d) - 1 times
    2  far F, near F                                      d times
    3  far F, far I, far W                                p - d times
    4  near F, near I, near W, far F, far I, far W        m - p times
    5  near I, far I                                      d times
    6  near I, near W                                     p - d times
    7  far W; then near W                                 d times each

    With m below 2p - 1 it is the order for 2p - 1, less the micro-batches that are not there.
    """
    enough = max(num_micro_batches, 2 * num_devices - 1)
    orders: list[Order] = []
    for device in range(num_devices):
        order = np.array(_pattern(device, num_devices, enough), np.int32)
        orders.append(order[turns_of(order) < num_micro_batches].tolist())  # forwards run out before the others
    return orders


def _pattern(device: int, num_devices: int, num_micro_batches: int) -> list[int]:
    stages, inner = 2 * num_devices, num_devices - device
    near, far = device, stages - 1 - device
    near_all, far_all = ([stage, stages + stage, 2 * stages + stage] for stage in (near, far))
    near_f, near_i, near_w = near_all
    far_f, far_i, far_w = far_all
    return [
        *[near_f] * (2 * inner - 1),
        *[far_f, near_f] * device,
        *far_all * inner,
        *(near_all + far_all) * (num_micro_batches - num_devices),
        *[near_i, far_i] * device,
        *[near_i, near_w] * inner,
        *[far_w] * device,
        *[near_w] * device,
    ]
