"""From a task graph to what each device does, resolved before the run: no look-up is left for the hot loop.

A planned task has one action, an overlapped pair has two.
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.plan.actions import PlannedAction, planned_actions
from executor.plan.decisions import PlannedDecision, decisions
from executor.plan.hand_overs import HandOver, awaited_transfers, hand_overs
from executor.plan.reductions import PlannedReduction, reductions
from schedir.errors import RefusedError
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the runner needs of a graph."""

    tasks: tuple[tuple[PlannedAction, ...], ...]
    """Actions of every compute task: one, or forward and backward of an overlapped pair."""
    device_tasks: tuple[range, ...]
    """Compute tasks of every device, in order."""
    hand_overs: tuple[HandOver, ...]
    awaited: tuple[tuple[int, int], ...]
    """(task, transfer): the task starts when the transfer has arrived, but leaves it to another."""
    reductions: tuple[PlannedReduction, ...]
    """Those over replicas first: an update takes their totals in this order."""
    decisions: tuple[PlannedDecision, ...] = ()
    """By mini-batch, where all stages decide together; else empty."""

    @property
    def swapped_stages(self) -> frozenset[int]:
        """Stages whose backwards read other weights than their forwards."""
        return frozenset(action.stage for actions in self.tasks for action in actions if action.swapped)


def make_plan(graph: TaskGraph) -> Plan:
    """Resolve a graph."""
    # once for each graph, in Python's own numbers: looking into arrays task by task would cost the hot loop microseconds each
    actions = planned_actions(graph)
    tasks: list[list[PlannedAction]] = [[] for _ in range(graph.num_compute_tasks)]
    for action in actions:
        tasks[action.task].append(action)
    return Plan(
        tasks=tuple(map(tuple, tasks)),
        device_tasks=tuple(graph.lane_range(device) for device in range(graph.program.num_devices)),
        hand_overs=tuple(hand_overs(graph, actions)),
        awaited=tuple(awaited_transfers(graph)),
        reductions=reductions(graph, actions),
        decisions=tuple(decisions(graph)),
    )


def refuse_selective(graph: TaskGraph) -> None:
    """Raise RefusedError for selective recomputation: nobody says which operations of a module it would be."""
    if "selective" in graph.options.recompute:
        raise RefusedError('recompute "selective" is known to cost models only: train with never, except-last or always')
