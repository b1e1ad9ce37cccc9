"""From seconds by kind and stage to seconds by task: a few look-ups over whole arrays.

    duration[task] = seconds[size of its micro-batch, its kind, its stage]

An overlapped pair whose cost is not stated takes as long as its two actions. NaN stands for "not stated".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Ints

Floats = NDArray[np.float64]

NUM_KINDS = len(Kind)

SIZED_KINDS = (
    Kind.FORWARD,
    Kind.BACKWARD,
    Kind.INPUT_GRAD,
    Kind.WEIGHT_GRAD,
    Kind.OVERLAPPED,
    Kind.RECOMPUTE,
)
"""Kinds whose work grows with the samples of their micro-batch; updates and predictions work on weights only."""


@dataclass(frozen=True, slots=True, eq=False)
class StageSeconds:
    """Seconds of every kind of work on every stage, for every size that a micro-batch may have."""

    seconds: Floats
    """float64 (num_sizes, len(Kind), num_stages); NaN where the cost is not stated; 0 for transfers and reductions."""
    row: Ints | None = None
    """int32 (num_micro_batches): the row of `seconds` for each micro-batch of a mini-batch; None for row 0 throughout."""


def with_sizes(seconds: Floats, sizes: tuple[int, ...]) -> StageSeconds:
    """Return seconds per sample, float64 (len(Kind), num_stages), as seconds for micro-batches of these sizes."""
    distinct, row = np.unique(np.array(sizes), return_inverse=True)
    scaled = np.repeat(seconds[None], len(distinct), axis=0)
    scaled[:, SIZED_KINDS] *= distinct[:, None, None]
    return StageSeconds(scaled, row.astype(np.int32))


def durations(graph: TaskGraph, table: StageSeconds) -> Floats:
    """Return the duration of every task in seconds, float64 (num_tasks); NaN where it is not stated."""
    found = _look_up(graph, table, (graph.kind, graph.stage, graph.micro_batch))
    if len(graph.pairs):
        found[graph.pairs.task] = _pairs(graph, table, found)
    return found


def _look_up(graph: TaskGraph, table: StageSeconds, work: tuple[Ints, Ints, Ints]) -> Floats:
    """Return the seconds of (kind, stage, micro-batch), one for each row of the three columns."""
    kind, stage, micro_batch = work
    num_stages = graph.program.num_stages
    key = kind * np.int32(num_stages) + stage
    if table.row is not None:
        key += table.row[micro_batch % graph.program.num_micro_batches] * np.int32(NUM_KINDS * num_stages)
    return table.seconds.reshape(-1).take(key)


def _pairs(graph: TaskGraph, table: StageSeconds, found: Floats) -> Floats:
    """Return the seconds of all pairs; a stated cost is that of the forward's stage, for the mean of the two sizes."""
    pairs = graph.pairs
    stage, micro_batch = graph.stage[pairs.task], graph.micro_batch[pairs.task]
    forward, overlapped = (np.full(len(pairs), kind, np.int8) for kind in (Kind.FORWARD, Kind.OVERLAPPED))
    stated = (found[pairs.task] + _look_up(graph, table, (overlapped, stage, pairs.micro_batch))) / 2
    apart = _look_up(graph, table, (forward, stage, micro_batch))
    apart += _look_up(graph, table, (pairs.kind, pairs.stage, pairs.micro_batch))
    return np.where(np.isnan(stated), apart, stated)


def kinds_present(graph: TaskGraph) -> frozenset[Kind]:
    """Return the kinds of all tasks, and of the backward halves of overlapped ones."""
    counts = np.bincount(graph.kind, minlength=NUM_KINDS)
    if len(graph.pairs):
        counts = counts + np.bincount(graph.pairs.kind, minlength=NUM_KINDS)
    return frozenset(Kind(kind) for kind in np.flatnonzero(counts).tolist())
