"""What a cost model is: durations for every task of a graph, and bytes for every unit of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from schedir.ir.graph import TaskGraph
from schedir.ir.in_order import TaskTimes

Bytes = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class UnitBytes:
    """Bytes of one unit of memory, each float64 (num_stages) for a micro-batch of `micro_batch_size` samples."""

    weights: Bytes
    gradients: Bytes
    optimizer: Bytes
    activations: Bytes
    """Kept from F to B (or W) without recomputation, the stage's input included."""
    boundary: Bytes
    """Kept instead when recomputed: the stage's input. It is also the size of the gradient that the stage sends back."""
    output: Bytes
    """Sent forward."""
    workspace: Bytes
    """Held while a task computes."""
    micro_batch_scale: Bytes | None = None
    """float64 (num_micro_batches): factor of each micro-batch of a mini-batch on activations, boundary, output and
    workspace; None for 1 throughout (all micro-batches have the same size)."""


class CostModel(Protocol):
    """Gives work per task and bytes per unit, for whole graphs at a time."""

    @property
    def basis(self) -> str:
        """What the numbers stand on: assumed, analytic, calibrated or measured."""
        ...

    def times(self, graph: TaskGraph) -> TaskTimes:
        """Return durations and latencies of all tasks, in seconds; raise ArgumentError if the costs do not fit the graph."""
        ...

    def unit_bytes(self, graph: TaskGraph) -> UnitBytes | None:
        """Return bytes per unit of memory, or None if the model carries no bytes."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return the model as plain JSON values, as under `costs` in `simulate --json`."""
        ...

    def notes(self, graph: TaskGraph) -> tuple[str, ...]:
        """Return one sentence for everything that is free or left out only because it was not given."""
        ...
