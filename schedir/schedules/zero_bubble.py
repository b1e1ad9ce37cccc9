"""ZB-H1 and ZB-H2 (Qi et al., Zero Bubble Pipeline Parallelism, 2023), and the same in a loop: weight gradients fill the bubble.

I is the input gradient (the paper's B), W the weight gradient; only the update waits for W, so it can be put off. (One
column = one slot, * = update.)

    zb-h1, p = 3, m = 4: 1F1B with W of micro-batch j behind I of j + k on stage k

        device 0 | F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3*
        device 1 | .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3*
        device 2 | .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3*

    zb-h2, p = 3, m = 6: 2(p - k) - 1 forwards first, W of micro-batch j behind I of j + 2k

        device 0 | F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5*.  .
        device 1 | .  F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5*.
        device 2 | .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5*

    interleaved-zb, p = 2, v = 2, m = 2: p - d - 1 + (v - 1)p forwards first, W of a backward behind the d-th I after its own

        device 0 | 0F0 0F1 2F0 2F1 .   2I0 2W0 2I1 2W1*0I0 0W0 0I1 0W1*
        device 1 | .   1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1*1I1 1W0 1W1*

Bubbles of a device's span (last end - first start) are (p - 1)(F + I - W) and (p - 1)(F + I - 2W) if m is large enough, with
at most p and 2p - 1 activations alive.
"""

from __future__ import annotations

import numpy as np

from schedir.costs.model import CostModel
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.interleaved import loop_groups, loop_order
from schedir.schedules.layout.alternate import alternate
from schedir.schedules.layout.blocks import straight
from schedir.schedules.layout.cost_aware import Layout, check_limit, follow_costs


def zb_h1(shape: Shape) -> Program:
    """Build ZB-H1 as a fixed order."""
    stage = np.arange(shape.num_devices)
    return _one_stage_each("zb-h1", shape, warm_ups=shape.num_devices - 1 - stage, delays=stage)


def zb_h2(shape: Shape, *, costs: CostModel | None = None, activation_limit: int | None = None) -> Program:
    """Build ZB-H2 as a fixed order, or by `costs` if they are given and that is shorter.

    `activation_limit` is the most micro-batches alive on a device, 2p - 1 if not given; it goes with costs. Raises
    ArgumentError, RefusedError where nothing fits.
    """
    p = shape.num_devices
    stage = np.arange(p)
    limit = check_limit(activation_limit, costs, default=2 * p - 1)
    fixed = _one_stage_each("zb-h2", shape, warm_ups=2 * (p - 1 - stage), delays=2 * stage)
    if costs is None:
        return fixed
    blocks = tuple(straight(p, legs=legs, turn=1) for legs in ((1, 2), (3, 3)))
    return follow_costs(fixed, Layout([(k,) for k in range(p)], blocks), shape, costs=costs, limit=limit)


def interleaved_zb(shape: Shape) -> Program:
    """Build the zero-bubble loop: (v - 1) p + p - d - 1 forwards, then F, I in turn, W of a backward behind the d-th I after it."""
    p, v, m = shape.num_devices, shape.stages_per_device, shape.num_micro_batches
    groups = loop_groups(p, m)
    slot, micro_batch = loop_order(groups, v)
    device = np.arange(p)
    is_forward, index = alternate(m * v, (v - 1) * int(groups[0]) + p - 1 - device)
    kind, index = delay_weight_grads(is_forward, index, device)
    stage = np.where(kind == Kind.FORWARD, slot[index], v - 1 - slot[index]) * p + device[:, None]
    return Program.from_matrix(
        "interleaved-zb",
        (kind, stage, micro_batch[index]),
        num_stages=p * v,
        num_micro_batches=m,
        num_mini_batches=shape.num_mini_batches,
    )


def _one_stage_each(name: str, shape: Shape, *, warm_ups: Ints, delays: Ints) -> Program:
    kind, micro_batch = delay_weight_grads(*alternate(shape.num_micro_batches, warm_ups), delays)
    return Program.from_matrix(
        name,
        (kind, np.arange(shape.num_devices)[:, None], micro_batch),
        num_stages=shape.num_devices,
        num_micro_batches=shape.num_micro_batches,
        num_mini_batches=shape.num_mini_batches,
    )


def delay_weight_grads(is_forward: Ints, index: Ints, delays: Ints) -> tuple[Ints, Ints]:
    """Return (kind, index) matrices: W of backward i stands behind I of backward i + delay, or behind the last I.

    `is_forward` and `index` are what `alternate` gives, `delays` has one value per row.
    """
    rows, n = len(is_forward), is_forward.shape[1] // 2
    place = np.broadcast_to(np.arange(2 * n), (rows, 2 * n))
    row = np.broadcast_to(np.arange(rows)[:, None], (rows, 2 * n))
    #   place    0   1   2   3   4   5          the row of device 1 of zb-h1, p = 3: delay 1
    #            F0  F1  I0  F2  I1  I2         W0 behind I1: key 2 * 4 + 1, W1 behind I2: 2 * 5 + 1, W2 behind the last, too
    #   key      0   2   4   6   8   10         the stable sort leaves W1 before W2
    place_of_input_grad = np.empty((rows, n), np.int64)
    place_of_input_grad[row[~is_forward], index[~is_forward]] = place[~is_forward]
    anchor = np.minimum(np.arange(n)[None, :] + delays[:, None], n - 1)
    key = np.concatenate((2 * place, 2 * np.take_along_axis(place_of_input_grad, anchor, axis=1) + 1), axis=1)
    order = np.argsort(key, axis=1, kind="stable")
    kind = np.where(is_forward, np.int8(Kind.FORWARD), np.int8(Kind.INPUT_GRAD))
    kind = np.concatenate((kind, np.full((rows, n), Kind.WEIGHT_GRAD, np.int8)), axis=1)
    index = np.concatenate((index, np.broadcast_to(np.arange(n), (rows, n))), axis=1)
    return np.take_along_axis(kind, order, axis=1), np.take_along_axis(index, order, axis=1)
