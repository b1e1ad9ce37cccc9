"""Where the transfers of a graph stand among its tasks.

lane         device 0 … device p - 1 │ link 0->1, link 1->0, … │ reductions
tasks        compute                 │ transfers               │ reductions        numbered lane by lane
"""

from __future__ import annotations

from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind


def transfers(graph: TaskGraph) -> slice:
    """Return the task numbers of all transfers."""
    first, last = graph.program.num_devices, len(graph.lanes)
    while last > first and graph.lanes[last - 1].kind is LaneKind.REDUCE:
        last -= 1
    return slice(int(graph.lane_start[first]), int(graph.lane_start[last]))
