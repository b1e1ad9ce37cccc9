"""1F1B: a few forwards, then one forward, one backward in turn, then the remaining backwards.

    p = 3, m = 4 (one column = one slot, * = update)

        device 0 | F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3*
        device 1 | .  F0 F1 .  B0 F2 B1 F3 B2 .  B3*.
        device 2 | .  .  F0 B0 F1 B1 F2 B2 F3 B3*.  .

With a flush behind every mini-batch this is PipeDream-Flush (Narayanan et al. 2021) or DAPPLE (Fan et al. 2021); without
one, over micro-batches that go on for ever, it is the order of PipeDream and XPipe (`continuous`). A device idles as under
GPipe, (p - 1)(F + B) a mini-batch, but device k holds only min(m, p - k) activations.
"""

from __future__ import annotations

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.layout.alternate import alternate


def one_f_one_b(shape: Shape) -> Program:
    """Build 1F1B with a flush behind every mini-batch."""
    stage = np.arange(shape.num_devices)
    is_forward, micro_batch = alternate(shape.num_micro_batches, shape.num_devices - 1 - stage)
    return Program.from_matrix(
        "1f1b",
        (np.where(is_forward, np.int8(Kind.FORWARD), np.int8(Kind.BACKWARD)), stage[:, None], micro_batch),
        num_stages=shape.num_devices,
        num_micro_batches=shape.num_micro_batches,
        num_mini_batches=shape.num_mini_batches,
    )
