"""1F1B: a few forwards, then one forward, one backward in turn, then the remaining backwards.

    p = 3, m = 4 (one cell = one action)

    device 0   F0 F1 F2 B0 F3 B1 B2 B3
    device 1   F0 F1 B0 F2 B1 F3 B2 B3
    device 2   F0 B0 F1 B1 F2 B2 F3 B3

With a flush behind every mini-batch this is PipeDream-Flush (Narayanan et al. 2021) or DAPPLE (Fan et al. 2021); without
one, over micro-batches that go on for ever, it is the order of PipeDream and XPipe. Device k holds min(m, p - k) activations.
"""

from __future__ import annotations

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.program import Ints, Program
from schedir.ir.shape import Shape


def one_f_one_b_order(micro_batches: Ints, warm_up: int) -> tuple[Ints, Ints]:
    """Return kinds and micro-batches of one device: `warm_up` forwards, then F, B, F, B, …, then what backwards remain."""
    n = len(micro_batches)
    early = min(warm_up, n)
    kinds = np.full(2 * n, Kind.BACKWARD, np.int8)
    order = np.empty(2 * n, np.int64)
    forward_at = np.concatenate((np.arange(early), early + 2 * np.arange(n - early)))
    backward_at = np.concatenate((early + 1 + 2 * np.arange(n - early), 2 * n - early + np.arange(early)))
    kinds[forward_at] = Kind.FORWARD
    order[forward_at] = micro_batches
    order[backward_at] = micro_batches
    return kinds, order


def one_f_one_b(shape: Shape) -> Program:
    """Build 1F1B with a flush behind every mini-batch."""
    p, m = shape.num_devices, shape.num_micro_batches
    orders = []
    for stage in range(p):
        kinds, micro_batches = one_f_one_b_order(np.arange(m), p - 1 - stage)
        first = m * np.arange(shape.num_mini_batches)[:, None]
        orders.append((np.tile(kinds, shape.num_mini_batches), stage, (first + micro_batches[None, :]).reshape(-1)))
    return Program.from_arrays("1f1b", orders, num_stages=p, num_micro_batches=m, num_mini_batches=shape.num_mini_batches)
