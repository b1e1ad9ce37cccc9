"""Durations drawn from single measurements, for Monte-Carlo: every task draws for itself."""

from __future__ import annotations

import numpy as np

from schedir.costs.model import Floats
from schedir.costs.stage_seconds import durations, pair_parts
from schedir.costs.table.resolved import Resolved
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph


def sample_durations(graph: TaskGraph, found: Resolved, rng: np.random.Generator, *, samples: int) -> Floats:
    """Return durations, float64 (num_tasks, samples).

    A draw is the task's duration times one of the factors sample/median of its kind and stage, so that firsts and other
    micro-batch sizes vary alike. The two actions of an overlapped pair that has no samples of its own draw apart.
    """
    count = graph.num_compute_tasks
    num_stages = graph.program.num_stages
    drawn = np.zeros((graph.num_tasks, samples))
    key = graph.kind[:count].astype(np.int64) * num_stages + graph.stage[:count]
    drawn[:count] = durations(graph, found.seconds)[:count, None]
    drawn[:count] *= found.samples.draw(key, rng, samples)
    if len(graph.pairs):
        _draw_pairs(graph, found, rng, drawn=drawn)
    return drawn


def _draw_pairs(graph: TaskGraph, found: Resolved, rng: np.random.Generator, *, drawn: Floats) -> None:
    """Fill in the pairs whose cost is not stated as one."""
    parts = pair_parts(graph, found.seconds)
    apart = np.flatnonzero(np.isnan(parts.stated))
    tasks, num_stages = graph.pairs.task[apart], graph.program.num_stages
    forward = np.int64(Kind.FORWARD) * num_stages + graph.stage[tasks]
    backward = graph.pairs.kind[apart].astype(np.int64) * num_stages + graph.pairs.stage[apart]
    samples = drawn.shape[1]
    drawn[tasks] = parts.forward[apart, None] * found.samples.draw(forward, rng, samples)
    drawn[tasks] += parts.backward[apart, None] * found.samples.draw(backward, rng, samples)
