"""From the tasks of a rehearsal to the samples of every kind of work: what is a sample, and which are dropped.

A sample is the wall time of one task. Where the system took the core away, the wall time exceeds the CPU time of the thread:
such a sample says something about the neighbours, not about the task, and is dropped. The parts of one stage are dropped
together, so that the i-th samples of a stage's layers belong to the same micro-batch and can be added up. On a machine where
this happens all the time nothing is dropped: training will meet the same, and what is left would not be a fair choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from schedir.costs.stage_seconds import SIZED_KINDS, first_tasks
from schedir.costs.work import WorkTime
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph

Booleans = NDArray[np.bool_]

PREEMPTED = 1.2
"""A wall time of more than so many times the CPU time tells of a core taken away."""
BACK_AND_FORTH = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)
"""The kinds that a step is mostly made of."""
OFTEN = 0.25
"""Where more than this share of the samples of a kind was preempted, all are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsal:
    """The tasks of one run and how long each took."""

    graph: TaskGraph
    wall: Floats
    """float64 (num_compute_tasks) in seconds."""
    cpu: Floats
    """float64 (num_compute_tasks): seconds that the thread computed meanwhile."""
    warm_up: int
    """Mini-batches at the start that are left out."""
    dispatch_gap_s: float = 0.0
    """Mean time between a task's being ready and its start."""

    def on_own_cores(self) -> Rehearsal:
        """Return the rehearsal as if every thread had had a core of its own; gaps, in which threads waited for one, are none."""
        return replace(self, wall=self.cpu, dispatch_gap_s=0.0)

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of its compute tasks."""
        return frozenset(map(Kind, np.unique(self.graph.kind[: self.graph.num_compute_tasks]).tolist()))


def work_times(rehearsal: Rehearsal, kind: Kind, parts: Sequence[int]) -> tuple[WorkTime | None, ...]:
    """Return the times of one kind for the parts of one stage; None where that kind was not run."""
    columns = [_tasks(rehearsal, kind, part) for part in parts]
    present = [tasks for tasks in columns if len(tasks)]
    if not present:
        return (None,) * len(parts)
    kept = _kept(rehearsal, present)
    return tuple(_work_time(rehearsal, tasks, kept) if len(tasks) else None for tasks in columns)


def preempted_fraction(rehearsal: Rehearsal, stages: Sequence[Sequence[int]]) -> float:
    """Return the share of forwards and backwards (or their halves) that were preempted, over stages given by their parts."""
    found = [
        _excess(rehearsal, [_tasks(rehearsal, kind, part) for part in parts]) > PREEMPTED
        for parts in stages
        for kind in BACK_AND_FORTH
        if kind in rehearsal.kinds
    ]
    return float(np.concatenate(found).mean())


def _tasks(rehearsal: Rehearsal, kind: Kind, part: int) -> NDArray[np.int64]:
    """Return the tasks in the order of their micro-batches, so that those of several parts correspond."""
    graph = rehearsal.graph
    compute = slice(0, graph.num_compute_tasks)
    chosen = (graph.kind[compute] == kind) & (graph.stage[compute] == part)
    found = np.flatnonzero(chosen & (graph.mini_batch[compute] >= rehearsal.warm_up))
    return found[np.argsort(graph.micro_batch[found], kind="stable")]


def _excess(rehearsal: Rehearsal, columns: Sequence[NDArray[np.int64]]) -> Floats:
    """Return wall time over CPU time of the corresponding tasks of all parts together."""
    wall, cpu = (np.sum([times[tasks] for tasks in columns], axis=0) for times in (rehearsal.wall, rehearsal.cpu))
    return np.asarray(wall / np.maximum(cpu, np.finfo(np.float64).tiny))


def _kept(rehearsal: Rehearsal, columns: Sequence[NDArray[np.int64]]) -> Booleans:
    """Return which of the corresponding tasks of all parts are samples; a mini-batch's first are judged by themselves."""
    calm = _excess(rehearsal, columns) <= PREEMPTED
    first = _is_first(rehearsal.graph, columns[0])
    for group in (first, ~first):
        if group.any() and calm[group].mean() < 1.0 - OFTEN:
            calm |= group
    return calm


def _work_time(rehearsal: Rehearsal, tasks: NDArray[np.int64], kept: Booleans) -> WorkTime:
    first = _is_first(rehearsal.graph, tasks)
    rest, firsts = (rehearsal.wall[tasks[kept & chosen]] for chosen in (~first, first))
    repeats = rehearsal.graph.mini_batch[tasks[kept & ~first]] - rehearsal.warm_up
    return WorkTime(
        median=float(np.median(rest)),
        first=float(np.median(firsts)) if len(firsts) else None,
        samples=tuple(rest.tolist()),
        repeats=tuple(repeats.tolist()),
    )


def _is_first(graph: TaskGraph, tasks: NDArray[np.int64]) -> Booleans:
    """Return which of the tasks of a kind and part are a mini-batch's first of several."""
    several = graph.program.num_micro_batches > 1 and graph.kind[tasks[0]] in SIZED_KINDS
    return np.isin(tasks, first_tasks(graph)) & several


def noise_floor(rehearsal: Rehearsal, stages: Sequence[Sequence[int]]) -> float:
    """Return how far the two halves of the measurement are apart, as a fraction, the mean over stages (given by their parts).

    A stage's half is its median forward plus its median backward. No prediction from these samples can be relied on to be nearer.
    """
    last = rehearsal.graph.program.num_mini_batches
    middle = (rehearsal.warm_up + last + 1) // 2
    differences = []
    for parts in stages:
        one, other = (_seconds(rehearsal, parts, range(*ends)) for ends in ((rehearsal.warm_up, middle), (middle, last)))
        if one and other:
            differences.append(2 * abs(one - other) / (one + other))
    return float(np.mean(differences)) if differences else 0.0


def _seconds(rehearsal: Rehearsal, parts: Sequence[int], mini_batches: range) -> float:
    """Return a stage's median forward plus its median backward, or halves, over some mini-batches; 0 without such tasks."""
    total = 0.0
    for kind in (kind for kind in BACK_AND_FORTH if kind in rehearsal.kinds):
        columns = [_tasks(rehearsal, kind, part) for part in parts]
        inside = np.isin(rehearsal.graph.mini_batch[columns[0]], mini_batches)
        if not inside.any():
            return 0.0
        total += float(np.median(np.sum([rehearsal.wall[tasks[inside]] for tasks in columns], axis=0)))
    return total
