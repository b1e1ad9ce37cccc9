"""What a cost model is: durations for every task of a graph, and bytes for every unit of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schedir.costs.work_times import WorkTimes
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.order.in_order import TaskTimes
from schedir.ir.program import Program

Bytes = NDArray[np.float64]
"""An array of bytes: float64, since costs are scaled and shared out."""


class Basis(StrEnum):
    """What the numbers of a cost model stand on."""

    ASSUMED = "assumed"
    ANALYTIC = "analytic"
    CALIBRATED = "calibrated"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, eq=False)
class UnitBytes:
    """Bytes of one unit of memory, each float64 (num_stages) for a micro-batch of the costs' own size."""

    weights: Bytes
    """One set of the stage's parameters: the current one, a stashed version, a prediction."""
    gradients: Bytes
    """Accumulated gradients of the stage."""
    optimizer: Bytes
    """Optimizer state of the stage."""
    activations: Bytes
    """Kept from F to B (or W) without recomputation, the stage's input included."""
    boundary: Bytes
    """Kept instead when recomputed: the stage's input; with selective recomputation also all that R does not make again."""
    recomputed: Bytes
    """Made again by R and held in addition to `boundary` until B (or W) ends."""
    output: Bytes
    """Sent forward."""
    input_gradient: Bytes
    """Sent backward: as large as the output of the stage before, 0 on stage 0."""
    workspace: Bytes
    """Held while a task computes."""
    freed_activations: Bytes | None = None
    """Of `activations` given back by I already, where the backward is split; below 0 where W needs more than F kept (it needs
    gradients of layers' outputs, too); None: nothing."""
    freed_boundary: Bytes | None = None
    """The same of `boundary`."""
    freed_recomputed: Bytes | None = None
    """The same of `recomputed`."""
    skip: Bytes | None = None
    """Sent over each skip connection that begins at the stage, and back as its gradient; None: as large as `output`."""
    tied_weights: Bytes | None = None
    """Of `weights`: those that other stages hold, too; None: nothing is known of them."""
    tied_optimizer: Bytes | None = None
    """The optimizer's state of these."""
    predictor: Bytes | None = None
    """Kept of the last update where the stage's weights are predicted; None: nothing is known of it."""
    micro_batch_scale: Floats | None = None
    """float64 (num_micro_batches): factor of each micro-batch of a mini-batch on activations, boundary, recomputed (and what is
    freed of them), output, input_gradient and workspace; None for 1 throughout (all micro-batches have the costs' own size)."""


# checkable at run time, since the borders (simulate, emulate) say in words what they want where they are given something else
@runtime_checkable
class CostModel(Protocol):
    """Gives work per task and bytes per unit, for whole graphs at a time."""

    @property
    def basis(self) -> Basis:
        """What the numbers stand on."""
        ...

    @property
    def states_transfers(self) -> bool:
        """Whether a latency of transfers was given, be it 0."""
        ...

    def times(self, graph: TaskGraph) -> TaskTimes:
        """Return durations and latencies of all tasks, in seconds; raise ArgumentError if the costs do not fit the graph."""
        ...

    def work_times(self, program: Program) -> WorkTimes:
        """Return the times of a program's work before it is compiled; raise ArgumentError if the costs do not fit it."""
        ...

    def bytes_of_transfers(self, graph: TaskGraph) -> Bytes | None:
        """Return the bytes of every transfer, float64 in the order of `transfers(graph)`, or None if they are not known."""
        ...

    def unit_bytes(self, graph: TaskGraph) -> UnitBytes | None:
        """Return bytes per unit of memory, or None if the model carries no bytes."""
        ...

    def micro_batch_samples(self, graph: TaskGraph) -> tuple[int, ...] | None:
        """Return the samples of each micro-batch of a mini-batch and replica, or None if they are not known."""
        ...

    def describe(self, graph: TaskGraph) -> Mapping[str, Any]:
        """Return the model as plain JSON values, as under `costs` in `simulate --json`; null for kinds not in the graph."""
        ...

    def notes(self, graph: TaskGraph, *, has_cluster: bool = False) -> tuple[str, ...]:
        """Return one sentence for everything that is free or left out only because it was not given."""
        ...


def free_reductions(graph: TaskGraph, *, has_cluster: bool, tied_known: bool = False) -> list[str]:
    """Return the notes on reductions that take no time; `tied_known`: the costs say how many bytes tied weights have."""
    # a reduction over      takes no time without
    #     replicas          a cluster (one with links but without bytes is the cluster's own note)
    #     tied stages       a cluster and the bytes of tied weights, which only costs per stage can state
    #     the model         a cluster: it is one number, whose bytes do not count
    ties = [lane.tie for lane in graph.lanes if lane.kind is LaneKind.REDUCE]
    notes = []
    if not has_cluster and any(lane.over_model for lane in graph.lanes):
        notes.append("the exchange of what all stages decide their updates by is free: no --cluster was given")
    if not has_cluster and any(lane.over_replicas for lane in graph.lanes):
        notes.append("gradient reductions over replicas are free: no --cluster was given")
    if any(ties) and not (has_cluster and tied_known):
        why = "no --cluster was given" if tied_known else "the costs do not say how many bytes they have"
        notes.append(f"exchanges of tied weights' gradients are free: {why}")
    return notes
