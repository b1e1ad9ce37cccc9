"""Let fewer devices do a program's work: those that share one take turns, in the order in which their actions could start.

    devices 0 and 1 of 1F1B, m = 2:   0F0 0F1         0B0     0B1          on one:   0F0 0F1 1F0 1B0 0B0 1F1 1B1 0B1
                                          1F0 1B0 1F1 1B1

A merged order never deadlocks, since it follows a run of the program in which everything took time. What it predicts and what it
trains are those of a program like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.ir.program import Program

_SECONDS = np.array([{Kind.BACKWARD: 2.0, Kind.OVERLAPPED: 3.0, Kind.TRANSFER: 0.0}.get(kind, 1.0) for kind in Kind])
"""Of the run that is followed: the usual proportions."""


def share_devices(graph: TaskGraph, num_devices: int, *, first: Ints | None = None) -> Program:
    """Return the graph's program on `num_devices` devices, neighbours sharing one; its own program if it has no more than that.

    `first` is as for `merge_devices`. Raises ArgumentError for a number below 1, and RefusedError where replicas that take
    mini-batches in turn would share a device.
    """
    program = graph.program
    if num_devices < 1:
        raise ArgumentError(f"num_devices {num_devices} must be at least 1")
    if num_devices >= program.num_devices:
        return program
    homes = [device * num_devices // program.num_devices for device in range(program.num_devices)]
    return merge_devices(graph, homes, first=first)


def merge_devices(graph: TaskGraph, homes: Sequence[int], *, first: Ints | None = None) -> Program:
    """Return the graph's program with device d's work on device `homes[d]`; the homes are 0, 1, … without a gap.

    `first` has a number for every task: those with lower ones come first, and no task has a lower one than what it needs.
    Raises RefusedError where replicas that take mini-batches in turn would share a device.
    """
    program, home = graph.program, np.array(homes)
    _check_replicas(graph, homes)
    compute = slice(0, graph.num_compute_tasks)
    # what the program itself has: what lowering added is added again when the merged program is compiled
    entries = np.flatnonzero(np.isin(graph.kind[compute], program.kind))
    start = evaluate(graph, TaskTimes(_SECONDS[graph.kind])).start[entries]
    device = graph.device[entries]
    # by home, then by start in the run that is followed; of two at the same time the lower device's goes first
    rank = np.zeros(len(entries)) if first is None else first[entries]
    rows = np.lexsort((device, start, rank, home[device]))
    counts = np.bincount(home[device])
    return Program.from_orders(
        program.name,
        [[program.entry(row) for row in part.tolist()] for part in np.split(rows, np.cumsum(counts)[:-1])],
        num_stages=program.num_stages,
        num_micro_batches=program.num_micro_batches,
        num_mini_batches=program.num_mini_batches,
        weights=program.weights,
    )


def _check_replicas(graph: TaskGraph, home: Sequence[int]) -> None:
    if graph.program.weights.synchronous:
        return
    for stage, devices in enumerate(graph.stage_devices()):
        if len({home[device] for device in devices}) < len(devices):
            raise RefusedError(
                f"replicas of stage {stage} stand on devices {', '.join(map(str, devices))}, and some would share one, where they "
                "are no longer replicas: use more devices, or a program without replicas"
            )
