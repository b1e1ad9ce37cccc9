"""The order that PipeDream, XPipe and their kin share: 1F1B over micro-batches without a flush.

Stage k of p runs p - k forwards, then strictly B, F, B, F … Its pictures stand in `pipedream` and `xpipe`. The program of N
mini-batches without its drain (the backwards behind a device's last forward) is a prefix of that of N + 1.

With replicas (1F1B-RR) mini-batch i goes to replica i mod r of a stage, forward and backward:

    p = 3 devices, replicas (2, 1), m = 1

        device 0 stage 0 | F0 F2 .  B0*.  .  F4 B2*.  .  .  B4*.  .
        device 1 stage 0 | F1 F3 .  .  .  B1*F5 .  .  B3*.  .  .  B5*
        device 2 stage 1 | .  F0 B0*F1 B1*F2 B2*F3 B3*F4 B4*F5 B5*.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.ir.weights import WeightRule
from schedir.schedules.layout.alternate import alternate


def continuous_order(name: str, shape: Shape, *, weights: WeightRule) -> Program:
    """Build 1F1B without a flush, a stage on every device."""
    stage = np.arange(shape.num_devices)
    # one row of micro-batches over all mini-batches: no drain between them is what makes the schedule continuous
    is_forward, micro_batch = alternate(shape.total_micro_batches, shape.num_devices - 1 - stage)
    return Program.from_matrix(
        name,
        (np.where(is_forward, np.int8(Kind.FORWARD), np.int8(Kind.BACKWARD)), stage[:, None], micro_batch),
        num_stages=shape.num_devices,
        num_micro_batches=shape.num_micro_batches,
        num_mini_batches=shape.num_mini_batches,
        weights=weights,
    )


def replicated_order(name: str, shape: Shape, *, weights: WeightRule, replicas: Sequence[int]) -> Program:
    """Build 1F1B-RR: stage k stands on `replicas[k]` devices, mini-batch i on replica i mod replicas[k].

    Warm-up of a device: (devices - 1 - devices in earlier stages) // replicas of its stage (the rule of PipeDream's code,
    which for one replica each is the paper's p - 1 - k, followed by F, B, F, B). With m > 1 the unit stays the mini-batch,
    all its forwards, then all its backwards: replicas wait for each other at every update, and an order by micro-batches
    would let one wait for forwards that it holds back itself.
    """
    m = shape.num_micro_batches
    within = np.arange(m)
    orders = []
    for stage, count in enumerate(replicas):
        warm_up = (shape.num_devices - 1 - sum(replicas[:stage])) // count
        for replica in range(count):
            # round robin by mini-batch: forward and backward of one on the same replica, which holds its stash
            own = np.arange(replica, shape.num_mini_batches, count)
            (is_forward,), (index,) = alternate(len(own), np.array([warm_up]))
            kinds = np.where(is_forward, np.int8(Kind.FORWARD), np.int8(Kind.BACKWARD))
            orders.append((np.repeat(kinds, m), stage, (m * own[index][:, None] + within).reshape(-1)))
    return Program.from_arrays(
        name,
        orders,
        num_stages=len(replicas),
        num_micro_batches=m,
        num_mini_batches=shape.num_mini_batches,
        weights=weights,
    )
