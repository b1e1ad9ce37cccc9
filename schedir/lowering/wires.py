"""Connect the compute tasks: put transfers, reductions and all edges of the graph into one table of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.compile_options import CompileOptions
from schedir.ir.lanes import Lane, link_lane
from schedir.lowering.edges import EdgeBuilder
from schedir.lowering.insertion import ComputeTasks
from schedir.lowering.reductions import ReductionTask, add_reduction_edges, find_reductions
from schedir.lowering.transfers import HandOvers, UsedLinks, add_recompute_edges, add_transfer_edges, find_transfers
from schedir.lowering.updates import Updates


@dataclass(frozen=True, slots=True, eq=False)
class Wires:
    """Transfers, reductions and edges; task numbers go on behind the compute tasks."""

    lanes: tuple[Lane, ...]
    """Link and reduction lanes, behind the compute lanes."""
    lane_sizes: Ints
    kind: Ints
    stage: Ints
    micro_batch: Ints
    device: Ints
    direction: Ints
    version: Ints
    edge_start: Ints
    edge_source: Ints
    edge_kind: Ints


def connect(table: ActionTable, tasks: ComputeTasks, updates: Updates, *, options: CompileOptions) -> Wires:
    """Return all tasks between devices and all edges."""
    paired, skips = len(table.program.pairs) > 0, options.skips
    hand_overs, links = find_transfers(table, tasks, skips)
    first_reduction = len(tasks.kind) + len(hand_overs.producer)
    reductions = find_reductions(table, tasks, updates, options=options, first=first_reduction)
    edges = EdgeBuilder(first_reduction + len(reductions))
    # the order in which edges are added is the order in which a task's sources are stored
    transfer = add_transfer_edges(hand_overs, len(tasks.kind), edges, paired=paired, distinct=not skips)
    if options.recompute_start == "on-gradient":
        add_recompute_edges(table, tasks, hand_overs, transfer=transfer, edges=edges)
    add_reduction_edges(reductions, first_reduction, edges)
    return _wires(tasks, hand_overs, links=links, reductions=reductions, edges=edges)


def _wires(
    tasks: ComputeTasks, hand_overs: HandOvers, *, links: UsedLinks, reductions: Sequence[ReductionTask], edges: EdgeBuilder
) -> Wires:
    """Put the columns together: transfers link after link, then reductions stage after stage."""
    start, source, kind = edges.build()
    size = len(hand_overs.producer)
    # lanes in the order in which their first reductions come, so their tasks are numbered lane by lane
    of_lane = Counter(reduction.lane for reduction in reductions)
    lanes = [*(link_lane(*ends) for ends in links.ends), *of_lane]
    return Wires(
        lanes=tuple(lanes),
        lane_sizes=np.array([*links.sizes.tolist(), *of_lane.values()], np.int64),
        kind=_joined(Kind.TRANSFER, [Kind.REDUCE for _ in reductions], size=size),
        stage=_joined(hand_overs.stage, [r.stage for r in reductions], size=size),
        micro_batch=_joined(hand_overs.micro_batch, [r.micro_batch for r in reductions], size=size),
        device=_joined(tasks.device[hand_overs.producer], [r.device for r in reductions], size=size),
        direction=_joined(hand_overs.direction, [Direction.BACKWARD for _ in reductions], size=size),
        version=_joined(-1, [r.version for r in reductions], size=size),
        edge_start=start,
        edge_source=source,
        edge_kind=kind,
    )


def _joined(of_transfers: Ints | int, of_reductions: list[int], *, size: int) -> Ints:
    """Return one column of `size` transfers (or one value for all of them) and the reductions behind them."""
    if isinstance(of_transfers, int):
        of_transfers = np.full(size, of_transfers, np.int32)
    return np.concatenate((of_transfers, np.array(of_reductions, np.int32))) if of_reductions else of_transfers
