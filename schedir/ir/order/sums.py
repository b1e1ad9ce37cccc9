"""Reductions as the loop over compute tasks meets them: where in the order they stand, and what each of them waits for.

    order       0F0 0B0 1F0 1B0 | reduction 0 | 0U0 1U0 0F1 … | reduction 1 | …
    stretch             4                        7                             compute tasks before it

Their places in the list of times are behind those of the compute tasks and one more, of what waits for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph_data import GraphData


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """All reductions of a graph; lists have one entry for each, by number."""

    order: list[int]
    """Their numbers, in the order in which they are evaluated."""
    stretches: list[int]
    """Compute tasks before each, behind the one before it, in the order in which they are evaluated."""
    waits: list[list[tuple[int, float]]]
    """Places of what each waits for, the one before it in its lane among them, with the latency behind that."""
    duration: list[float]

    @classmethod
    def of(cls, graph: GraphData, duration: Floats, latency: Floats | None) -> Sums | None:
        """Return a graph's reductions, None where there are none; `duration` and `latency` are those of all tasks."""
        complete = graph.topology.complete
        if complete is None:
            return None
        num_compute = graph.num_compute_tasks
        first = num_compute + len(graph.topology.needs.sender)
        at = np.flatnonzero(complete >= first)
        before = np.cumsum(complete < num_compute)[at]
        return cls(
            order=(complete[at] - first).tolist(),
            stretches=np.diff(before, prepend=0).tolist(),
            waits=_waits(graph, first, latency),
            duration=duration[first:].tolist(),
        )


def _waits(graph: GraphData, first: int, latency: Floats | None) -> list[list[tuple[int, float]]]:
    """Return what reductions, the tasks from `first` on, wait for."""
    num_compute, bounds = graph.num_compute_tasks, graph.edge_start[first:]
    source = graph.edge_source[bounds[0] :]
    place = _places(source, first, num_compute).tolist()
    late = [0.0] * len(source) if latency is None else latency[source].tolist()
    edges = list(zip(place, late, strict=True))
    low = int(bounds[0])
    waits = [edges[begin - low : end - low] for begin, end in pairwise(bounds.tolist())]
    heads = set(graph.lane_start.tolist())
    for number, wait in enumerate(waits):
        # a lane is free when its last task is released, whenever others see the result
        if first + number not in heads:
            wait.append((num_compute + number, 0.0))
    return waits


def _places(task: Ints, first: int, num_compute: int) -> Ints:
    return np.where(task < num_compute, task, task - (first - num_compute) + 1)
