"""GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards, one synchronous update.

    p = 3, m = 4, backwards in reverse order as in the paper's figure 2c (one column = one slot, * = update)

        device 0 | F0 F1 F2 F3 .  .  .  .  B3 B2 B1 B0*
        device 1 | .  F0 F1 F2 F3 .  .  B3 B2 B1 B0*.
        device 2 | .  .  F0 F1 F2 F3 B3 B2 B1 B0*.  .

A device idles (p - 1)(F + B) a mini-batch, (p - 1)/(m + p - 1) of the whole (its section 2.3), and holds m activations.
"""

from __future__ import annotations

import numpy as np

from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.ir.shape import Shape

ORDERS = ("reverse", "fifo")


def gpipe(shape: Shape, *, order: str = "reverse") -> Program:
    """Build GPipe; `order` is the order of the backwards: reverse (the paper's) or fifo."""
    if order not in ORDERS:
        raise ArgumentError(f"order {order!r} is unknown: use {' or '.join(ORDERS)}")
    m = shape.num_micro_batches
    forwards = np.arange(m)
    backwards = forwards[::-1] if order == "reverse" else forwards
    return Program.from_matrix(
        "gpipe",
        (
            np.repeat(np.array([Kind.FORWARD, Kind.BACKWARD], np.int8), m),
            np.arange(shape.num_devices)[:, None],
            np.concatenate((forwards, backwards)),
        ),
        num_stages=shape.num_devices,
        num_micro_batches=m,
        num_mini_batches=shape.num_mini_batches,
    )
