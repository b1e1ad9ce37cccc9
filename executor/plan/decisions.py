"""Who waits at each moment at which all stages decide together on their updates.

last gradient of stage 0 ─┐                          ┌─▶ U of stage 0
last gradient of stage 1 ─┼─▶ one task of the graph ─┼─▶ U of stage 1      every device puts in one number, say the norm
last gradient of stage 2 ─┘                          └─▶ U of stage 2      of its gradients, and takes what all of them make
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from executor.plan.local import LOCAL
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class PlannedDecision:
    """A moment at which all stages decide together on the updates of one mini-batch."""

    task: int
    """LOCAL on one device, where no task of the graph stands for it."""
    update: int
    """Version that the updates make."""
    devices: tuple[int, ...]
    """Devices that make these updates, increasing."""
    takers: tuple[int, ...]
    """Update tasks."""

    @property
    def name(self) -> str:
        """Say what somebody who waits for it waits for."""
        return f"the verdict on all gradients, for update {self.update}"


def decisions(graph: TaskGraph) -> Iterator[PlannedDecision]:
    """Yield who waits at each moment at which all stages decide together: the updates behind the graph's edges."""
    if not graph.options.common_update:
        return
    updates = np.flatnonzero(graph.kind == Kind.UPDATE)
    # one device asks nobody, but its updates still wait for the gradients of all its stages
    common = common_tasks(graph) or [LOCAL] * graph.program.num_mini_batches
    # a common update goes with a flush, so the n-th decision makes version n of every stage
    for version, task in enumerate(common, start=1):
        takers = updates[graph.version[updates] == version].tolist()
        assert task == LOCAL or all(task in graph.sources(update) for update in takers), "every update waits for its decision"
        devices = tuple(np.unique(graph.device[takers]).tolist())
        yield PlannedDecision(task, version, devices, tuple(takers))


def common_tasks(graph: TaskGraph) -> range:
    """Return the tasks through which all stages decide together; none on one device."""
    lanes = [graph.lane_range(number) for number, lane in enumerate(graph.lanes) if lane.over_model]
    return lanes[0] if lanes else range(0)
