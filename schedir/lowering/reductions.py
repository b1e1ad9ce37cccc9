"""Sums over devices, each a task of its own: what replicas, stages of a tie, or all stages have to exchange before they update.

    last gradients of all replicas ──▶ reduction ──▶ U on every replica
    last gradients of all stages of a tie ──▶ reduction ──▶ U of each, if they stand on several devices
    last gradients of all stages, or what sums them ──▶ reduction ──▶ every U     for a common update, on several devices

That last reduction is one number that all devices exchange. It is a task of its own, so p stages cost 2p edges a mini-batch and not
p², and a cluster can say how long the exchange takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.compile_options import CompileOptions
from schedir.ir.graph_data import EdgeKind
from schedir.ir.lanes import Lane, LaneKind
from schedir.lowering.edges import EdgeBuilder
from schedir.lowering.insertion import ComputeTasks
from schedir.lowering.updates import Updates


@dataclass(frozen=True, slots=True, eq=False)
class ReductionTask:
    """One sum over the replicas of a stage, over the stages of a tie, or what all stages decide by."""

    stage: int
    """Of a tie the first, of all stages 0."""
    device: int
    micro_batch: int
    version: int
    sources: Ints
    """Last gradients, by stage, then device."""
    updates: Ints
    tie: tuple[int, ...] = ()
    over_model: bool = False

    @property
    def lane(self) -> Lane:
        """The lane that it runs on."""
        return Lane(LaneKind.REDUCE, self.device, -1 if self.over_model else self.stage, self.tie)


def find_reductions(
    table: ActionTable, tasks: ComputeTasks, updates: Updates, *, options: CompileOptions, first: int
) -> list[ReductionTask]:
    """Return all reductions in the order of their tasks, of which `first` is the first: those of one lane stand together."""
    found = [*_over_replicas(table, tasks, updates), *_over_ties(table, tasks, updates, ties=options.ties)]
    # one device decides alone: its order is enough
    if options.common_update and table.program.num_devices > 1:
        found += _over_model(table, tasks, updates, sums=found.copy(), first=first)
    return found


def _over_replicas(table: ActionTable, tasks: ComputeTasks, updates: Updates) -> Iterator[ReductionTask]:
    """Yield one per update of every replicated stage, by stage, then version."""
    for stage in updates.replicated:
        yield from _sums(table, tasks, updates, stages=(stage,))


def _over_ties(
    table: ActionTable, tasks: ComputeTasks, updates: Updates, *, ties: tuple[tuple[int, ...], ...]
) -> Iterator[ReductionTask]:
    """Yield one per update of every tie; on one device the update's place, behind all gradients, is enough."""
    for tie in ties:
        if len(np.unique(updates.device[np.isin(updates.stage, tie)])) > 1:
            yield from (replace(reduction, tie=tie) for reduction in _sums(table, tasks, updates, stages=tie))


def _sums(table: ActionTable, tasks: ComputeTasks, updates: Updates, *, stages: tuple[int, ...]) -> Iterator[ReductionTask]:
    """Yield the sum of every update over all devices of some stages, which are updated by the same rounds."""
    at = np.flatnonzero(np.isin(updates.stage, stages))
    # of a tie: all its stages flush together, so one round size is that of all
    per_update = int(updates.round_size[stages[0]]) * table.program.num_micro_batches
    for version in range(1, int(updates.version[at].max()) + 1):
        makers = at[updates.version[at] == version]
        sources = [
            row for stage in stages for row in _last_rows(table, stage, slice((version - 1) * per_update, version * per_update))
        ]
        yield ReductionTask(
            stage=stages[0],
            device=int(updates.device[at].min()),
            micro_batch=int(updates.micro_batch[makers[0]]),
            version=version,
            sources=tasks.entry_task[np.array(sources)],
            updates=tasks.update_task[makers],
        )


def _over_model(
    table: ActionTable, tasks: ComputeTasks, updates: Updates, *, sums: Sequence[ReductionTask], first: int
) -> Iterator[ReductionTask]:
    """Yield one per mini-batch, behind the sums of replicas and ties (tasks `first`, …) and the last gradients of other stages."""
    program = table.program
    summed = {stage for each in sums for stage in each.tie or (each.stage,)}
    alone = np.array([stage for stage in range(program.num_stages) if stage not in summed], np.int64)
    # stages that nothing sums stand on one device each, so their largest row of a mini-batch is the last gradient
    rows = table.last_row.reshape(program.num_stages, program.num_mini_batches, program.num_micro_batches)[alone].max(axis=2)
    last = tasks.entry_task[rows].T
    of_version: list[list[int]] = [[] for _ in range(program.num_mini_batches)]
    for task, each in enumerate(sums, start=first):
        of_version[each.version - 1].append(task)
    # every update is made as often as every other: sorted by version they are a table
    makers = tasks.update_task[np.argsort(updates.version, kind="stable")].reshape(program.num_mini_batches, -1)
    for number, more in enumerate(of_version):
        yield ReductionTask(
            stage=0,
            device=0,
            micro_batch=(number + 1) * program.num_micro_batches - 1,
            version=number + 1,
            sources=np.concatenate((last[number], more)).astype(np.int64),
            updates=makers[number],
            over_model=True,
        )


def _last_rows(table: ActionTable, stage: int, micro_batches: slice) -> Iterator[int]:
    """Yield the row of a stage's last gradient of some micro-batches on each of its devices."""
    members = table.by_stage(table.last_row)[stage][micro_batches]
    homes = table.device[members]
    # rows grow with a device's order: the largest is the last
    yield from (int(members[homes == device].max()) for device in np.unique(homes).tolist())


def add_reduction_edges(reductions: Sequence[ReductionTask], first: int, edges: EdgeBuilder) -> None:
    """Add last gradients to reduction to updates, also to those of replicas without a share."""
    for task, reduction in enumerate(reductions, start=first):
        edges.add(reduction.sources, np.full(len(reduction.sources), task), EdgeKind.REDUCE, distinct=False)
        edges.add(np.full(len(reduction.updates), task), reduction.updates, EdgeKind.REDUCE)
