"""Which gradients are summed over devices or stages before an update.

    stage 1 on devices 1 and 2: a task of the graph       stages 0 and 3 tied, both on device 0: LOCAL

        device 1   1B ─┐             ┌─▶ 1U               device 0   0B … 3B ─┬─▶ 0U
        device 2   1B ─┴─▶ reduction ┴─▶ 1U                                   └─▶ 3U
                  members          takers                           members  takers

Members and takers stand in one order on every device: all of them add the same floats in the same order, so replicas stay equal
to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from executor.plan.actions import BACKWARDS, PlannedAction
from executor.plan.decisions import common_tasks
from executor.plan.local import LOCAL
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class PlannedReduction:
    """The sum of a stage's gradients over its replicas, or of tied weights' gradients over the stages that hold them."""

    task: int
    """LOCAL where all of it happens on one device, which no task of the graph stands for."""
    update: int
    stage: int
    """Of a tie the first."""
    members: tuple[int, ...]
    """Last gradient task of every stage and replica that has a share, in the order of the stages, then devices."""
    member_stages: tuple[int, ...]
    """Stage of every member."""
    takers: tuple[int, ...]
    """Update tasks, in the order of the stages, then devices."""
    num_averaged: int
    """Mini-batches whose gradients the update averages."""
    tie: tuple[int, ...] = ()
    """Stages of the tie; empty for replicas."""

    @property
    def name(self) -> str:
        """Say what somebody who waits for it waits for."""
        if self.tie:
            stages = ", ".join(map(str, self.tie))
            return f"the gradients of the weights that stages {stages} share, for update {self.update}"
        return f"the gradients of all replicas of stage {self.stage} for its update {self.update}"


def reductions(graph: TaskGraph, actions: Sequence[PlannedAction]) -> tuple[PlannedReduction, ...]:
    """Return all reductions, those over replicas before those over ties."""
    # the sort is stable, and those over replicas have an empty tie
    return tuple(sorted((*_between_devices(graph), *_on_one_device(graph, actions)), key=lambda found: len(found.tie)))


def _between_devices(graph: TaskGraph) -> Iterator[PlannedReduction]:
    """Yield those that are tasks of the graph."""
    takers: dict[int, list[int]] = {}
    # what all stages decide by is a reduction for the graph, too, but carries no gradients
    common = set(common_tasks(graph))
    for update in np.flatnonzero(graph.kind == Kind.UPDATE).tolist():
        for source in graph.sources(update).tolist():
            if graph.kind[source] == Kind.REDUCE and source not in common:
                takers.setdefault(source, []).append(update)
    # a last gradient may be half of an overlapped pair, whose task has the forward's stage
    halves = dict(zip(graph.pairs.task.tolist(), graph.pairs.stage.tolist(), strict=True))
    for task, updates in takers.items():
        first, members = updates[0], graph.sources(task).tolist()
        tie = graph.lanes[graph.task(task).lane].tie
        yield PlannedReduction(
            task=task,
            update=int(graph.version[first]),
            stage=int(graph.stage[task]),
            members=tuple(members),
            member_stages=tuple(halves.get(member, int(graph.stage[member])) for member in members),
            takers=tuple(sorted(updates, key=lambda update: tie.index(graph.stage[update]))) if tie else tuple(updates),
            num_averaged=len(graph.members(first)) // graph.program.num_micro_batches,
            tie=tie,
        )


def _on_one_device(graph: TaskGraph, actions: Sequence[PlannedAction]) -> Iterator[PlannedReduction]:
    """Yield the sums over ties whose stages all stand on one device: updates stand behind all gradients there."""
    hosts = graph.stage_devices() if graph.options.ties else ()
    local = [tie for tie in graph.options.ties if len({device for stage in tie for device in hosts[stage]}) == 1]
    last: dict[tuple[int, int], int] = {}
    updates: dict[tuple[int, int], int] = {}
    m = graph.program.num_micro_batches
    # only programs with a flush have ties, so a version is a mini-batch; of a stage's gradients the last assigned stays
    for action in actions if local else ():
        if action.kind is Kind.UPDATE:
            updates[action.stage, action.version] = action.task
        elif action.kind in BACKWARDS:
            last[action.stage, action.micro_batch // m + 1] = action.task
    for tie in local:
        for update in range(1, graph.program.num_mini_batches + 1):
            yield PlannedReduction(
                task=LOCAL,
                update=update,
                stage=tie[0],
                members=tuple(last[stage, update] for stage in tie),
                member_stages=tie,
                takers=tuple(updates[stage, update] for stage in tie),
                num_averaged=1,
                tie=tie,
            )
