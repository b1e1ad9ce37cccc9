"""How long it takes on a cluster that devices sum gradients, or decide together on their updates.

gradients in r = 3 parts a, b, c, round a ring of r devices         one number of each device, to decide by

    step           1  2 │ 3  4                                          1 ──┐       ┌──▶ 1
    0 sends to 1   a  c │ b  a     2 (r - 1) steps, in each of which    2 ──┴─▶ 0 ──┴──▶ 2     two messages, one behind
    1 sends to 2   b  a │ c  b     every link carries 1/r of the bytes                         the other
    2 sends to 0   c  b │ a  c
                   summed, then handed round
"""

from __future__ import annotations

from schedir.costs.cluster.placement import Placement
from schedir.costs.model import CostModel, UnitBytes
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind


def add_reductions(graph: TaskGraph, costs: CostModel, placement: Placement, *, duration: Floats) -> None:
    """Fill in how long the replicas of a stage, or the devices of a tie, need to sum their gradients over a ring.

    Source: Patarasuk and Yuan 2009; PipeDream's 4 (r - 1) |w| / r counts sending and receiving apart.
    """
    lanes = [number for number, lane in enumerate(graph.lanes) if lane.kind is LaneKind.REDUCE and not lane.over_model]
    # without links or bytes a reduction stays free, and the notes say so
    unit = costs.unit_bytes(graph) if lanes and placement.levels else None
    if unit is None:
        return
    hosts = graph.stage_devices()
    for lane in lanes:
        tie, stage = graph.lanes[lane].tie, graph.lanes[lane].peer
        size = _tied_bytes(unit, tie) if tie else unit.gradients[stage]
        # one ring through all that hold a share, also where stages of a tie have several replicas
        devices = sorted({device for each in tie or (stage,) for device in hosts[each]})
        members, (bandwidth, latency) = len(devices), placement.ring(devices)
        tasks = slice(int(graph.lane_start[lane]), int(graph.lane_start[lane + 1]))
        # where nothing is stated to be exchanged, not even a latency is due
        duration[tasks] = 2 * (members - 1) / members * size / bandwidth + 2 * (members - 1) * latency * (size > 0)


def add_common_update(graph: TaskGraph, placement: Placement, *, duration: Floats) -> None:
    """Fill in how long the devices need to put one number each together.

    All send theirs to the first device, which answers: two messages one after the other, over the slowest link, of latency alone.
    """
    lane = next((number for number, lane in enumerate(graph.lanes) if lane.over_model), None)
    if lane is None or not placement.levels:
        return
    others = range(1, graph.program.num_devices)
    there = max(placement.link_of(other, 0).latency for other in others)
    back = max(placement.link_of(0, other).latency for other in others)
    duration[graph.lane_start[lane] : graph.lane_start[lane + 1]] = there + back


def _tied_bytes(unit: UnitBytes, tie: tuple[int, ...]) -> float:
    """Return the bytes of the gradients that a tie exchanges, those of its stage that has most; 0 where they are not stated."""
    return 0.0 if unit.tied_weights is None else float(unit.tied_weights[list(tie)].max())
