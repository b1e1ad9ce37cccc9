"""The actions of a graph, each with all that the hot loop would otherwise have to look up.

Whatever the executor needs to know about an action's weights is read off the graph here: which set it reads, who reads that set
last, whether the backward reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from schedir.ir.action import Direction, Kind
from schedir.ir.graph import TaskGraph

BACKWARDS = (Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)
READERS = (Kind.FORWARD, *BACKWARDS, Kind.RECOMPUTE)
"""Kinds that compute with a stage's weights; a prediction reads the newest set, which is never freed."""


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """One action with all that the graph says about it."""

    task: int
    kind: Kind
    stage: int
    micro_batch: int
    """In this graph; of an update its last member, of a prediction its bellwether."""
    version: int
    """Version it reads (predicts from); of an update the one it makes."""
    horizon: int
    maker: int
    """Task of the prediction that it reads, -1 for true weights."""
    direction: Direction
    half: int = 0
    """1 for the backward half of an overlapped pair."""
    last_reader: bool = False
    """Nobody on this device reads these weights afterwards."""
    recomputed: bool = False
    """The forward runs once more before the backward."""
    swapped: bool = False
    """It records the graph (R, or an F that is not recomputed), and the backward reads other weights."""
    keeps_previous: bool = False
    """Of an update: the version before it is still read afterwards."""
    update: int = 0
    """Version whose update takes this action's gradient."""
    last_update: bool = False
    """Of an update: no other of this stage follows."""

    @property
    def weights(self) -> tuple[int, int]:
        """Name of the set that it reads: (version, maker)."""
        return self.version, self.maker


def planned_actions(graph: TaskGraph) -> list[PlannedAction]:
    """Return all actions in the order of the lanes, each with what the others decide about it."""
    actions = list(_actions(graph))
    facts = _Facts.of(graph, actions)
    return [facts.resolve(action) for action in actions]


def _actions(graph: TaskGraph) -> Iterator[PlannedAction]:
    """Yield all actions of the compute tasks, the halves of overlapped pairs apart, in the order of the lanes."""
    compute = slice(0, graph.num_compute_tasks)
    columns = (graph.kind, graph.stage, graph.micro_batch, graph.version, graph.horizon, graph.predicted_by, graph.direction)
    rows = zip(*(column[compute].tolist() for column in columns), strict=True)
    pair_rows = {task: row for row, task in enumerate(graph.pairs.task.tolist())}
    for task, (kind, stage, j, version, horizon, maker, direction) in enumerate(rows):
        # the executor does the two halves of a pair one after the other; the task's columns are its forward's
        own = Kind.FORWARD if kind == Kind.OVERLAPPED else Kind(kind)
        yield PlannedAction(task, own, stage, j, version, horizon, maker, Direction(direction))
        if kind == Kind.OVERLAPPED:
            yield _backward_half(graph, task, pair_rows[task])


def _backward_half(graph: TaskGraph, task: int, row: int) -> PlannedAction:
    pairs = graph.pairs
    columns = (pairs.kind, pairs.stage, pairs.micro_batch, pairs.version, pairs.horizon, pairs.predicted_by)
    kind, stage, j, version, horizon, maker = (int(column[row]) for column in columns)
    return PlannedAction(task, Kind(kind), stage, j, version, horizon, maker, Direction.BACKWARD, half=1)


Weights = tuple[int, int, int, int]
"""One set of weights on one device: (device, stage, version, maker)."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What an action has to know about the others."""

    graph: TaskGraph
    device: list[int]
    last_reader: dict[Weights, tuple[int, int]]
    """(task, half) of the last action that reads them."""
    recomputed: set[tuple[int, int]]
    """(stage, micro-batch)."""
    backward_reads: dict[tuple[int, int], tuple[int, int]]
    """The set (version, maker) that B, or I and W, of a (stage, micro-batch) read."""

    @classmethod
    def of(cls, graph: TaskGraph, actions: list[PlannedAction]) -> _Facts:
        device = graph.device.tolist()
        return cls(
            graph=graph,
            device=device,
            # actions stand in the order of their lanes, so of a set's readers the last one stays
            last_reader={(device[a.task], a.stage, *a.weights): (a.task, a.half) for a in actions if a.kind in READERS},
            recomputed={(a.stage, a.micro_batch) for a in actions if a.kind is Kind.RECOMPUTE},
            # of two halves either one says it: both read the same
            backward_reads={(a.stage, a.micro_batch): a.weights for a in actions if a.kind in BACKWARDS},
        )

    def resolve(self, action: PlannedAction) -> PlannedAction:
        """Fill in what the other actions decide."""
        key = action.stage, action.micro_batch
        per_update = int(self.graph.round_size[action.stage]) * self.graph.program.num_micro_batches
        device = self.device[action.task]
        if action.kind is Kind.UPDATE:
            previous = (device, action.stage, action.version - 1, -1)
            # Versions of weights between the updates of one stage on one device, read (r) by the tasks in between:
            #     … r0 U1 r1 r0 U2 r1 …     U1 keeps version 0, U2 keeps version 1: each has a reader behind the update
            #     … r0 U1 r1 r1 U2 r2 …     neither keeps anything: the update is made in place
            return replace(
                action,
                update=action.version,
                keeps_previous=self.last_reader.get(previous, (-1, 0))[0] > action.task,
                last_update=action.micro_batch == self.graph.program.total_micro_batches - 1,
            )
        if action.kind not in READERS:
            return action
        recomputed = key in self.recomputed
        # the forward whose graph the backward goes through: the last one before it
        records = action.kind is Kind.RECOMPUTE or (action.kind is Kind.FORWARD and not recomputed)
        return replace(
            action,
            # version 1 is made of the first round's gradients
            update=action.micro_batch // per_update + 1,
            last_reader=self.last_reader[device, action.stage, *action.weights] == (action.task, action.half),
            recomputed=recomputed,
            swapped=records and self.backward_reads[key] != action.weights,
        )
