"""What must come before what, before there is a graph: lanes and edges alone, and what compute tasks wait for by them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.order.topology import Needs


@dataclass(frozen=True, slots=True)
class Precedence:
    """What must come before what: the part of a graph that decides what can run when."""

    lane_start: Ints
    edge_start: Ints
    edge_source: Ints
    num_devices: int
    num_reductions: int = 0
    """Reductions, the last tasks, wait for several tasks: with any, an order of all tasks is looked for."""
    period: Ints | None = None
    """Of all tasks, where every update waits for all stages: the mini-batch, of updates the next one. Lanes come by periods."""

    @property
    def num_compute(self) -> int:
        """Number of tasks on compute lanes."""
        return int(self.lane_start[self.num_devices])

    @property
    def num_tasks(self) -> int:
        """Number of tasks on all lanes."""
        return int(self.lane_start[-1])


def look_through(precedence: Precedence) -> Needs:
    """Return the compute tasks and reductions that each compute task waits for, and the transfers through which it does."""
    num_compute, num_reductions = precedence.num_compute, precedence.num_reductions
    # the needs as columns, since few tasks have more than one:
    #   task        0  1  2  3
    #   source[0]   .  0  0  2       . = num_compute, the number of a task that does not exist and is always done
    #   source[1]   .  .  1  .       (its transfer: num_tasks, which has latency 0)
    first = int(precedence.edge_start[num_compute])
    # transfers have one source each
    sender = precedence.edge_source[first : precedence.edge_start[precedence.num_tasks - num_reductions]]
    # by task that is no compute task: what it stands for. Updates wait for reductions as they are, of which sources are many
    giver = np.append(sender, np.arange(num_compute + 1, num_compute + 1 + num_reductions, dtype=np.int32))
    widths = precedence.edge_start[1 : num_compute + 1] - precedence.edge_start[:num_compute]
    widest = int(widths.max(initial=0))
    sources, through = [], []
    for k in range(max(widest, 1)):
        wide = np.flatnonzero(widths > k)
        found = precedence.edge_source[precedence.edge_start[wide] + k] if widest > 1 else precedence.edge_source[:first]
        assert found.min(initial=num_compute) >= num_compute, "what stands on one device needs no edge"
        transfer = np.full(num_compute, precedence.num_tasks, np.int32)
        transfer[wide] = found
        source = np.full(num_compute, num_compute, np.int32)
        source[wide] = giver[found.astype(np.intp) - num_compute]
        sources.append(frozen_array(source, np.int32))
        through.append(frozen_array(transfer, np.int32))
    return Needs(tuple(sources), tuple(through), frozen_array(sender, np.int32))
