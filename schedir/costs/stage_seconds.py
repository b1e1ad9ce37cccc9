"""From seconds by kind and stage to seconds by task: a few look-ups over whole arrays.

    duration[task] = seconds[size of its micro-batch, its kind, its stage]

An overlapped pair whose cost is not stated takes as long as its two actions. NaN stands for "not stated".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.costs.transfers import transfers
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind

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
    first: Floats | None = None
    """Like `seconds`, for the first task of its kind in each mini-batch on its stage and device; None: as all others."""
    row: Ints | None = None
    """int32 (num_micro_batches): the row of `seconds` for each micro-batch of a mini-batch; None for row 0 throughout."""


def with_sizes(seconds: Floats, sizes: tuple[int, ...]) -> StageSeconds:
    """Return seconds per sample, float64 (len(Kind), num_stages), as seconds for micro-batches of these sizes."""
    # one table for each distinct size, not for each micro-batch
    distinct, row = np.unique(np.array(sizes), return_inverse=True)
    scaled = np.repeat(seconds[None], len(distinct), axis=0)
    # axes: size, kind, stage; a stage's update costs the same whatever the size
    scaled[:, SIZED_KINDS] *= distinct[:, None, None]
    return StageSeconds(scaled, row=row.astype(np.int32))


def durations(graph: TaskGraph, table: StageSeconds) -> Floats:
    """Return the duration of every task in seconds, float64 (num_tasks); NaN where it is not stated."""
    found = _look_up(graph, table, (graph.kind, graph.stage, graph.micro_batch))
    if table.first is not None:
        tasks = first_tasks(graph)
        cold = StageSeconds(table.first, row=table.row)
        found[tasks] = _look_up(graph, cold, (graph.kind[tasks], graph.stage[tasks], graph.micro_batch[tasks]))
    if len(graph.pairs):
        parts = pair_parts(graph, table)
        found[graph.pairs.task] = np.where(np.isnan(parts.stated), parts.forward + parts.backward, parts.stated)
    return found


def first_tasks(graph: TaskGraph) -> Ints:
    """Return the compute tasks that are the first of their kind, stage and device in their mini-batch."""
    count, program = graph.num_compute_tasks, graph.program
    #   kind  stage  mini-batch            numbers with a base each, so that one number stands for all that must be equal;
    #   (  F,     1,          2 ) -> key   the first task of each key is the first of its kind on its stage in its mini-batch
    key = graph.kind[:count].astype(np.int64) * program.num_stages + graph.stage[:count]
    key = key * program.num_mini_batches + graph.mini_batch[:count]
    if any(lane.kind is LaneKind.REDUCE for lane in graph.lanes):  # a stage on several devices
        return np.unique(key * program.num_devices + graph.device[:count], return_index=True)[1]
    # every stage on one device: tasks of a key follow each other in its lane, and a table is faster than a sort
    first = np.full(NUM_KINDS * program.num_stages * program.num_mini_batches, -1, np.int32)
    first[key[::-1]] = np.arange(count - 1, -1, -1, dtype=np.int32)  # of several the last assigned stays
    return first[first >= 0]


def _look_up(graph: TaskGraph, table: StageSeconds, work: tuple[Ints, Ints, Ints]) -> Floats:
    """Return the seconds of (kind, stage, micro-batch), one for each row of the three columns."""
    kind, stage, micro_batch = work
    num_stages = graph.program.num_stages
    # the table flat, so that one `take` serves all tasks: [row, kind, stage] -> (row * num_kinds + kind) * num_stages + stage
    key = kind * np.intp(num_stages) + stage
    if table.row is not None:
        key += table.row[micro_batch % graph.program.num_micro_batches] * np.intp(NUM_KINDS * num_stages)
    return table.seconds.reshape(-1).take(key)


@dataclass(frozen=True, slots=True, eq=False)
class PairParts:
    """Seconds of all overlapped pairs, each float64 (num_pairs)."""

    stated: Floats
    """Of the pair as one, as stated for the forward's stage, for the mean of the two sizes; NaN where it is not stated."""
    forward: Floats
    """Of its forward alone."""
    backward: Floats
    """Of its backward or input gradient alone."""


def pair_parts(graph: TaskGraph, table: StageSeconds) -> PairParts:
    """Return the seconds of all overlapped pairs and of their actions."""
    pairs = graph.pairs
    stage, micro_batch = graph.stage[pairs.task], graph.micro_batch[pairs.task]
    forward, overlapped = (np.full(len(pairs), kind, np.int8) for kind in (Kind.FORWARD, Kind.OVERLAPPED))
    # for both micro-batches, as the two may differ in size; their mean is what the pair as a whole works on
    stated = _look_up(graph, table, (overlapped, stage, micro_batch))
    stated += _look_up(graph, table, (overlapped, stage, pairs.micro_batch))
    return PairParts(
        stated=stated / 2,
        forward=_look_up(graph, table, (forward, stage, micro_batch)),
        backward=_look_up(graph, table, (pairs.kind, pairs.stage, pairs.micro_batch)),
    )


def kinds_present(graph: TaskGraph) -> frozenset[Kind]:
    """Return the kinds of all tasks, and of the backward halves of overlapped ones."""
    counts = np.bincount(graph.kind[: graph.num_compute_tasks], minlength=NUM_KINDS)
    # transfers and reductions are told by their lanes: there may be more of them than compute tasks, and no lane is empty
    lanes = {lane.kind for lane in graph.lanes}
    counts[Kind.TRANSFER], counts[Kind.REDUCE] = LaneKind.LINK in lanes, LaneKind.REDUCE in lanes
    if len(graph.pairs):
        counts = counts + np.bincount(graph.pairs.kind, minlength=NUM_KINDS)
    return frozenset(Kind(kind) for kind in np.flatnonzero(counts).tolist())


def latencies(graph: TaskGraph, latency: float | Sequence[float] | None) -> Floats | None:
    """Return the latency of every task, float64 (num_tasks), from one value or one per sending stage; None if there is none."""
    chosen = transfers(graph)
    # None, not zeros: without latencies a task's end is its release, and engines keep one array for both
    if not latency or chosen.start == chosen.stop:
        return None
    seconds = np.zeros(graph.num_tasks)
    seconds[chosen] = np.array(latency).take(graph.stage[chosen]) if isinstance(latency, Sequence) else latency
    return seconds
