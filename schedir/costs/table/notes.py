"""What a table of costs leaves free or out only because it does not state it, one sentence each."""

from __future__ import annotations

import numpy as np

from schedir.costs.stage_seconds import kinds_present
from schedir.costs.table.resolved import Resolved
from schedir.costs.table.stage_arrays import MEMORY_BYTES, missing_bytes, unit_bytes_of
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph

_PLURALS = {Kind.UPDATE: "updates", Kind.PREDICT: "predictions"}


def transfer_notes(graph: TaskGraph, name: str) -> list[str]:
    """Return a note where the graph has transfers, for a table called `name` without a latency, and no cluster."""
    if Kind.TRANSFER not in kinds_present(graph):
        return []
    return [f"transfers are free: {name} states no transfer latency, and neither --transfer nor --cluster was given"]


def task_notes(graph: TaskGraph, found: Resolved, name: str) -> list[str]:
    """Return a note for updates and predictions that are in the graph, but not in the table."""
    present = kinds_present(graph)
    free = [kind for kind in _PLURALS if kind in present and kind in found.unstated]
    return [f"{_PLURALS[kind]} are free: {name} states no {kind.word} time" for kind in free]


def memory_notes(found: Resolved, name: str) -> list[str]:
    """Return a note where memory is not computed, or lacks bytes."""
    if unit_bytes_of(found.bytes[0], np.array(found.selective), None) is not None:
        missing = missing_bytes(found.bytes[0])
        return [f"memory is too low: {name} states no bytes of {', '.join(missing)} for every stage"] if missing else []
    if all(np.isnan(found.bytes[0][key]).all() for key in MEMORY_BYTES):
        return [f"memory is not computed: {name} states no bytes of weights, gradients, optimizer or activations"]
    return [f"memory is not computed: {name} states no bytes.activations_selective, which selective recomputation keeps"]
