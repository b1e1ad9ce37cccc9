"""Which transfers of a graph belong to skip connections: they end at a stage that is no neighbour of the one that sends."""

from __future__ import annotations

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind

NO_SKIP = -1
"""Stands for the source of a transfer between neighbours."""


def skip_sources(graph: TaskGraph) -> Ints:
    """Return the stage at which the skip connection of every transfer begins, int64 (num_transfers); NO_SKIP between neighbours.

    A gradient that comes back over a skip connection belongs to the stage that has sent the value.
    """
    transfers = np.flatnonzero(graph.kind == Kind.TRANSFER)
    found = np.full(len(transfers), NO_SKIP, np.int64)
    if not graph.options.skips:
        return found
    target = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    carried = (
        (graph.edge_kind == EdgeKind.DATA) & (graph.edge_source >= graph.num_compute_tasks) & (target < graph.num_compute_tasks)
    )
    reader = np.full(graph.num_tasks, -1, np.int64)
    reader[graph.edge_source[carried]] = target[carried]
    of_backward = graph.stage.copy()
    of_backward[graph.pairs.task] = graph.pairs.stage  # a pair's own stage is its forward's
    backward = graph.direction[transfers] == Direction.BACKWARD
    ends = np.where(backward, of_backward[reader[transfers]], graph.stage[reader[transfers]])
    away = np.abs(ends - graph.stage[transfers]) > 1
    found[away] = np.minimum(ends, graph.stage[transfers])[away]
    return found
