"""How many bytes every transfer of a graph carries.

stage        0 ── output of 0 ──▶ 1 ── output of 1 ──▶ 2        forward: what the sender makes
             0 ◀─ as large back ─ 1 ◀─ as large back ─ 2        backward: the gradient of what the receiver made
skip         0 ─────── skip of 0 ────────────────────▶ 2        both ways: of the stage where the skip connection begins
"""

from __future__ import annotations

import numpy as np

from schedir.costs.model import Bytes
from schedir.costs.table.resolved import Resolved
from schedir.costs.table.stage_arrays import handed_over, skipped
from schedir.costs.transfers import transfers
from schedir.errors import ArgumentError
from schedir.ir.action import Direction
from schedir.ir.graph import TaskGraph
from schedir.ir.skips import NO_SKIP, skip_sources


def transfer_bytes(graph: TaskGraph, found: Resolved, name: str) -> Bytes | None:
    """Return the bytes of every transfer, float64 in the order of `transfers(graph)`; None if no stage states any.

    Raises ArgumentError where a stage does not state what others state: those transfers would be free without a word.
    """
    chosen = transfers(graph)
    stage, backward = graph.stage[chosen], graph.direction[chosen] == Direction.BACKWARD
    row = found.row_of(graph.micro_batch[chosen] % graph.program.num_micro_batches)
    source = skip_sources(graph)
    # a gradient's task has the stage that sends it, and what it is the gradient of was made one stage before
    giver = np.where(source == NO_SKIP, stage - backward, source)
    # [size of the micro-batch, stage] -> bytes
    size: Bytes = np.stack([handed_over(amounts) for amounts in found.bytes])[row, giver]
    if graph.options.skips:
        size = np.where(source == NO_SKIP, size, np.stack([skipped(amounts) for amounts in found.bytes])[row, giver])
    unknown = np.isnan(size)
    if unknown.all():
        return None
    if unknown.any():
        first = int(np.flatnonzero(unknown)[0])
        raise ArgumentError(f"{name}: stage {giver[first]} does not state bytes.output, others do: give it")
    return size
