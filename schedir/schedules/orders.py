"""Orders of one mini-batch as plain tuples, and the program that repeats them for every mini-batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.ir.shape import Shape

Work = tuple[Kind, int, int]
"""(kind, stage, micro-batch)."""
Orders = list[list[Work]]
"""What every device runs, in order."""


def repeated(name: str, orders: Sequence[Sequence[Work]], shape: Shape, *, num_stages: int) -> Program:
    """Return the program of orders of mini-batch 0, repeated for every other one."""
    first = shape.num_micro_batches * np.arange(shape.num_mini_batches)[:, None]
    columns = []
    for order in orders:
        kind, stage, micro_batch = np.array(order, np.int64).reshape(-1, 3).T
        again = (shape.num_mini_batches, 1)
        columns.append((np.tile(kind, again).ravel(), np.tile(stage, again).ravel(), (micro_batch + first).ravel()))
    return Program.from_arrays(
        name,
        columns,
        num_stages=num_stages,
        num_micro_batches=shape.num_micro_batches,
        num_mini_batches=shape.num_mini_batches,
    )


def orders_of(program: Program) -> Orders:
    """Return what every device runs for mini-batch 0 of a program that repeats it for every other one."""
    columns = (program.kind.tolist(), program.stage.tolist(), program.micro_batch.tolist())
    entries = [(Kind(kind), stage, j) for kind, stage, j in zip(*columns, strict=True)]
    starts = program.device_start.tolist()
    once = ((end - start) // program.num_mini_batches for start, end in pairwise(starts))
    return [entries[start : start + length] for start, length in zip(starts, once, strict=False)]


def peak_live(orders: Sequence[Sequence[Work]]) -> int:
    """Return the most (stage, micro-batch) pairs alive on a device, from the start of F to the end of B or W."""
    peak = 0
    for order in orders:
        live = 0
        for kind, _, _ in order:
            if kind is Kind.FORWARD:
                live += 1
                peak = max(peak, live)
            elif kind is not Kind.INPUT_GRAD:
                live -= 1
    return peak
