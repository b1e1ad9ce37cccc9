"""Which action hands which of its values to which other one, and by which transfer.

stage       0               1               2                skip connection 0 -> 2
F(s, j)     F ── part 0 ──▶ F ──────────────▶ F              F of stage 0 makes two values, so they are told apart by
            └─── part 1 ──────────────────────▶              part; F of stage 1 makes one: part None
B(s, j)     B ◀──────────── B ◀─── part 0 ─── B              the gradients go the same ways back
            ◀───────────────────── part 1 ────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from executor.plan.actions import PlannedAction
from executor.plan.local import LOCAL
from schedir.ir.action import Direction, Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind

SENDS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD)
"""Kinds whose values others take; of a split backward the weight gradients stay where they are."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """A value that goes from one action to another."""

    producer: tuple[int, int]
    """(task, half)."""
    consumer: tuple[int, int]
    transfer: int
    """Task of the transfer, or LOCAL."""
    part: int | None = None
    """Which of the producer's values it is, where a stage with skip connections makes several: the neighbour's first."""


def hand_overs(graph: TaskGraph, actions: Sequence[PlannedAction]) -> Iterator[HandOver]:
    """Yield F(s, j) to F(s + 1, j), and B or I (s + 1, j) to B or I (s, j); behind each those over skip connections.

    What one consumer takes comes in this order: its neighbour's value, then those over skip connections by the stage at their end.
    """
    device = graph.device.tolist()
    transfers, ways = _transfers(graph), _ways(graph)
    makers = {(a.direction, a.stage, a.micro_batch): (a.task, a.half) for a in actions if a.kind in SENDS}
    for (direction, stage, j), consumer in makers.items():
        for sender, part in ways[direction, stage]:
            # of a stage with replicas the producer is the replica that has j: only one of them has
            producer = makers[direction, sender, j]
            remote = device[producer[0]] != device[consumer[0]]
            yield HandOver(producer, consumer, transfers[direction, producer[0], consumer[0]] if remote else LOCAL, part)


def _ways(graph: TaskGraph) -> dict[tuple[Direction, int], list[tuple[int, int | None]]]:
    """Return by (direction, stage) whose values it takes, and which of the values that they make."""
    last, skips = graph.program.num_stages - 1, graph.options.skips
    found: dict[tuple[Direction, int], list[tuple[int, int | None]]] = {}
    for stage in range(last + 1):
        for direction, end, step in ((Direction.FORWARD, 0, -1), (Direction.BACKWARD, last, 1)):
            # a skip connection is (first, last): its first stage sends the value, its last sends the gradient
            sends, takes = (0, 1) if direction is Direction.FORWARD else (1, 0)
            senders = [] if stage == end else [stage + step]
            senders += [skip[sends] for skip in skips if skip[takes] == stage]
            found[direction, stage] = [(sender, _part(skips, sender, stage, sends=sends)) for sender in senders]
    return found


def _part(skips: tuple[tuple[int, int], ...], sender: int, taker: int, *, sends: int) -> int | None:
    """Return which of the values of a stage another one takes; None where it makes one value."""
    takers = [skip[1 - sends] for skip in skips if skip[sends] == sender]
    if not takers:
        return None
    return 1 + takers.index(taker) if taker in takers else 0  # the neighbour's stands in front of those over skip connections


def _transfers(graph: TaskGraph) -> dict[tuple[int, int, int], int]:
    """Return the transfers by (direction, task that makes what they carry, task that takes it)."""
    found = {}
    # edges are stored by target, so their targets are counted out: edge_start 0 0 2 3 -> targets 1 1 2
    targets = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    # from a transfer to a recomputation leads an order edge: it waits for the gradient, but its backward takes it
    carried = (graph.edge_kind == EdgeKind.DATA) & (graph.edge_source >= graph.num_compute_tasks)
    for transfer, consumer in zip(graph.edge_source[carried].tolist(), targets[carried].tolist(), strict=True):
        producer = int(graph.edge_source[graph.edge_start[transfer]])
        found[int(graph.direction[transfer]), producer, consumer] = transfer
    return found


def awaited_transfers(graph: TaskGraph) -> Iterator[tuple[int, int]]:
    """Yield (recomputation, transfer) where the recomputation waits for the gradient."""
    for task in np.flatnonzero(graph.kind == Kind.RECOMPUTE).tolist():
        for source in graph.sources(task).tolist():
            if graph.kind[source] == Kind.TRANSFER:
                yield task, source
