"""Cut a graph into the steps of a trainer: what every device does once the data of one more mini-batch is there.

Step s takes mini-batch s. Under a flush it is all tasks of that mini-batch. Without one it is what must run before the forwards of
mini-batch s have all run, and nothing more, so the steps of a program are those of the same program with more mini-batches; what
no forward waits for is the drain, step N.

    pipedream, p = 3, m = 1, | between steps

        device 0 | F0 | F1 | F2 | B0*F3 | B1*F4 | B2*F5 | …
        device 1 | F0 | F1 | B0*F2 | B1*F3 | B2*F4 | B3*F5 | …
        device 2 | F0 | B0*F1 | B1*F2 | B2*F3 | B3*F4 | B4*F5 | …

Behind the start-up the steps repeat, with every number higher by the same amount: so a program of a few mini-batches goes on for
ever (`executor.plan.endless`). A task of any step has a name that never comes again: `step * block + place in the step`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from executor.plan.actions import PlannedAction
from executor.plan.decisions import PlannedDecision
from executor.plan.local import LOCAL
from executor.plan.plan import Plan, make_plan
from executor.plan.reductions import PlannedReduction
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph


def steps_of(graph: TaskGraph) -> Ints:
    """Return the step of every task, int64 (num_tasks); the drain is step num_mini_batches.

    A transfer or reduction counts to the step in which what it carries is there.
    """
    if graph.program.weights.synchronous:
        return np.asarray(graph.mini_batch, np.int64)
    forward = (graph.kind == Kind.FORWARD) | (graph.kind == Kind.OVERLAPPED)
    step = np.where(forward, graph.mini_batch, graph.program.num_mini_batches).tolist()
    starts = set(graph.lane_start.tolist())
    edge_start, edge_source = graph.edge_start.tolist(), graph.edge_source.tolist()
    # from the last task to the first: whatever somebody waits for has to run by the earliest step of those who wait, among whom
    # is the next task of its own lane
    for task in reversed(graph.topology.order.tolist()):
        sources = edge_source[edge_start[task] : edge_start[task + 1]]
        if task < graph.num_compute_tasks and task not in starts:
            sources.append(task - 1)
        for source in sources:
            step[source] = min(step[source], step[task])
    for task in range(graph.num_compute_tasks, graph.num_tasks):  # where it is made, wherever it is taken
        step[task] = max(step[source] for source in graph.sources(task).tolist())
    return np.array(step, np.int64)


def places_of(graph: TaskGraph, step: Ints) -> Ints:
    """Return the place of every task in its step, int64 (num_tasks): compute tasks by device and order, transfers, reductions."""
    compute = np.arange(graph.num_tasks) < graph.num_compute_tasks
    group = np.where(compute, 0, np.where(graph.kind == Kind.TRANSFER, 1, 2))
    first = np.where(compute, np.arange(graph.num_tasks), graph.direction * graph.program.num_stages + graph.stage)
    order = np.lexsort((graph.micro_batch, first, group, step))
    ordered = step[order]
    place = np.empty(graph.num_tasks, np.int64)
    # its number in the whole order less that of the first of its step
    place[order] = np.arange(graph.num_tasks) - np.searchsorted(ordered, ordered, side="left")
    return place


@dataclass(frozen=True, slots=True, eq=False)
class StepTable:
    """A graph cut into steps, with what each needs to be run anywhere in an endless row of them."""

    graph: TaskGraph
    plan: Plan
    step: list[int]
    """By task."""
    place: list[int]
    """By task: its place in its step."""
    finished: tuple[tuple[int, ...], ...]
    """By step, the drain last: mini-batches whose last task on any stage, an update, stands in it."""
    device_tasks: tuple[tuple[tuple[int, ...], ...], ...]
    """By step, then device: its compute tasks in order."""

    @classmethod
    def of(cls, graph: TaskGraph) -> StepTable:
        """Cut a graph; raise RefusedError for what the executor cannot do."""
        plan, step = make_plan(graph), steps_of(graph)
        place = places_of(graph, step)
        num_steps = graph.program.num_mini_batches + 1
        by_step: list[list[list[int]]] = [[[] for _ in plan.device_tasks] for _ in range(num_steps)]
        for device, tasks in enumerate(plan.device_tasks):
            for task in tasks:
                by_step[step[task]][device].append(task)
        return cls(
            graph=graph,
            plan=plan,
            step=step.tolist(),
            place=place.tolist(),
            finished=_finished(graph, step),
            device_tasks=tuple(tuple(map(tuple, devices)) for devices in by_step),
        )

    @property
    def largest_step(self) -> int:
        """Tasks of the largest step, transfers and reductions included."""
        return int(max(self.place, default=0)) + 1

    def decision(self, step: int, move: Move) -> PlannedDecision | None:
        """Return what all stages decide together in a step that is moved, or None; there is a flush, so step s is mini-batch s."""
        if not self.plan.decisions:
            return None
        found = self.plan.decisions[step]
        task = LOCAL if found.task == LOCAL else self.name(found.task, move)
        return replace(found, task=task, update=found.update + move.steps)

    def name(self, task: int, move: Move) -> int:
        """Return the name of a task in a step that is moved."""
        #   block 4, step 2 with 3 tasks:   8 9 10 (11)   a step with fewer tasks than the largest leaves names out
        return (self.step[task] + move.steps) * move.block + self.place[task]

    def moved(self, action: PlannedAction, move: Move) -> PlannedAction:
        """Return an action as it stands `move.steps` steps later."""
        # mini-batches go on by as many as steps, updates by fewer where replicas take mini-batches in turn: one for each round
        updates = move.steps // int(self.graph.round_size[action.stage])
        return replace(
            action,
            task=self.name(action.task, move),
            micro_batch=action.micro_batch + move.steps * self.graph.program.num_micro_batches,
            version=action.version + updates,
            maker=self.name(action.maker, move) if action.maker >= 0 else -1,
            update=action.update + updates if action.update else 0,
            last_update=False,
        )

    def moved_reduction(self, reduction: PlannedReduction, move: Move) -> PlannedReduction:
        """Return a reduction as it stands `move.steps` steps later; its members and takers keep their numbers in this graph."""
        updates = move.steps // int(self.graph.round_size[reduction.stage])
        task = LOCAL if reduction.task == LOCAL else self.name(reduction.task, move)
        return replace(reduction, task=task, update=reduction.update + updates)


@dataclass(frozen=True, slots=True)
class Move:
    """How far a step stands from its place in the graph."""

    steps: int
    """A multiple of the table's period; mini-batches are as many more."""
    block: int
    """Names that a step has."""


def _finished(graph: TaskGraph, step: Ints) -> tuple[tuple[int, ...], ...]:
    program = graph.program
    last = np.zeros(program.num_mini_batches, np.int64)
    np.maximum.at(last, graph.mini_batch, step)
    for update in np.flatnonzero(graph.kind == Kind.UPDATE).tolist():
        members = graph.members(update)
        mini_batches = slice(members.start // program.num_micro_batches, -(-members.stop // program.num_micro_batches))
        last[mini_batches] = np.maximum(last[mini_batches], step[update])
    return tuple(tuple(np.flatnonzero(last == number).tolist()) for number in range(program.num_mini_batches + 1))
