"""From a task graph to what each device does, resolved before the run: no look-up is left for the hot loop.

A planned task has one action, an overlapped pair has two. Whatever the executor needs to know about an action's weights is read
off the graph here: which set it reads, who reads that set last, whether the backward reads the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from schedir.errors import RefusedError
from schedir.ir.action import Direction, Kind
from schedir.ir.graph import EdgeKind, TaskGraph

BACKWARDS = (Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)
SENDS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD)
READERS = (Kind.FORWARD, *BACKWARDS, Kind.RECOMPUTE)
LOCAL = -1
"""Stands for the transfer of a hand-over on one device."""


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
    halves_agree: bool = False
    """I and W of its micro-batch read the same weights."""
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


@dataclass(frozen=True, slots=True)
class HandOver:
    """A value that goes from one action to another."""

    producer: tuple[int, int]
    """(task, half)."""
    consumer: tuple[int, int]
    transfer: int
    """Task of the transfer, or LOCAL."""
    part: int | None = None
    """Which of the producer's values it is, where a stage with skip connections makes several: the neighbour's first."""


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


@dataclass(frozen=True, slots=True)
class PlannedDecision:
    """A moment at which all stages decide together on the updates of one mini-batch."""

    task: int
    """LOCAL on one device, where no task of the graph stands for it."""
    update: int
    """Version that the updates make."""
    devices: tuple[int, ...]
    """Devices that make these updates, increasing."""
    takers: tuple[int, ...]
    """Update tasks."""

    @property
    def name(self) -> str:
        """Say what somebody who waits for it waits for."""
        return f"the verdict on all gradients, for update {self.update}"


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


def make_plan(graph: TaskGraph) -> Plan:
    """Resolve a graph."""
    actions = list(_actions(graph))
    facts = _Facts.of(graph, actions)
    tasks: list[list[PlannedAction]] = [[] for _ in range(graph.num_compute_tasks)]
    for action in actions:
        tasks[action.task].append(facts.resolve(action))
    return Plan(
        tasks=tuple(map(tuple, tasks)),
        device_tasks=tuple(graph.lane_range(device) for device in range(graph.program.num_devices)),
        hand_overs=tuple(_hand_overs(graph, actions)),
        awaited=tuple(_awaited(graph)),
        reductions=tuple(sorted((*_reductions(graph), *_local_ties(graph, actions)), key=lambda found: len(found.tie))),
        decisions=tuple(_decisions(graph)),
    )


def refuse_selective(graph: TaskGraph) -> None:
    """Raise RefusedError for selective recomputation: nobody says which operations of a module it would be."""
    if "selective" in graph.options.recompute:
        raise RefusedError('recompute "selective" is known to cost models only: train with never, except-last or always')


def _actions(graph: TaskGraph) -> Iterator[PlannedAction]:
    """Yield all actions of the compute tasks, the halves of overlapped pairs apart, in the order of the lanes."""
    compute = slice(0, graph.num_compute_tasks)
    columns = (graph.kind, graph.stage, graph.micro_batch, graph.version, graph.horizon, graph.predicted_by, graph.direction)
    rows = zip(*(column[compute].tolist() for column in columns), strict=True)
    pair_rows = {task: row for row, task in enumerate(graph.pairs.task.tolist())}
    for task, (kind, stage, j, version, horizon, maker, direction) in enumerate(rows):
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
    backward_reads: dict[tuple[int, int], set[tuple[int, int]]]
    """Sets (version, maker) that B, or I and W, of a (stage, micro-batch) read."""

    @classmethod
    def of(cls, graph: TaskGraph, actions: list[PlannedAction]) -> _Facts:
        device = graph.device.tolist()
        backward_reads: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for action in actions:
            if action.kind in BACKWARDS:
                backward_reads.setdefault((action.stage, action.micro_batch), set()).add(action.weights)
        return cls(
            graph=graph,
            device=device,
            # actions stand in the order of their lanes, so of a set's readers the last one stays
            last_reader={(device[a.task], a.stage, *a.weights): (a.task, a.half) for a in actions if a.kind in READERS},
            recomputed={(a.stage, a.micro_batch) for a in actions if a.kind is Kind.RECOMPUTE},
            backward_reads=backward_reads,
        )

    def resolve(self, action: PlannedAction) -> PlannedAction:
        """Fill in what the other actions decide."""
        key = action.stage, action.micro_batch
        per_update = int(self.graph.round_size[action.stage]) * self.graph.program.num_micro_batches
        device = self.device[action.task]
        if action.kind is Kind.UPDATE:
            previous = (device, action.stage, action.version - 1, -1)
            return replace(
                action,
                update=action.version,
                keeps_previous=self.last_reader.get(previous, (-1, 0))[0] > action.task,
                last_update=action.micro_batch == self.graph.program.total_micro_batches - 1,
            )
        if action.kind not in READERS:
            return action
        recomputed = key in self.recomputed
        records = action.kind is Kind.RECOMPUTE or (action.kind is Kind.FORWARD and not recomputed)
        return replace(
            action,
            # version 1 is made of the first round's gradients
            update=action.micro_batch // per_update + 1,
            last_reader=self.last_reader[device, action.stage, *action.weights] == (action.task, action.half),
            recomputed=recomputed,
            halves_agree=len(self.backward_reads[key]) == 1,
            swapped=records and self.backward_reads[key] != {action.weights},
        )


def _hand_overs(graph: TaskGraph, actions: list[PlannedAction]) -> Iterator[HandOver]:
    """Yield F(s, j) to F(s + 1, j), and B or I (s + 1, j) to B or I (s, j); behind each those over skip connections.

    What one consumer takes comes in this order: its neighbour's value, then those over skip connections by the stage at their end.
    """
    device = graph.device.tolist()
    transfers, ways = _transfers(graph), _ways(graph)
    makers = {(a.direction, a.stage, a.micro_batch): (a.task, a.half) for a in actions if a.kind in SENDS}
    for (direction, stage, j), consumer in makers.items():
        for sender, part in ways[direction, stage]:
            producer = makers[direction, sender, j]
            remote = device[producer[0]] != device[consumer[0]]
            yield HandOver(producer, consumer, transfers[direction, producer[0], consumer[0]] if remote else LOCAL, part)


def _ways(graph: TaskGraph) -> dict[tuple[Direction, int], list[tuple[int, int | None]]]:
    """Return by (direction, stage) whose values it takes, and which of the values that they make."""
    last, skips = graph.program.num_stages - 1, graph.options.skips
    found: dict[tuple[Direction, int], list[tuple[int, int | None]]] = {}
    for stage in range(last + 1):
        for direction, end, step in ((Direction.FORWARD, 0, -1), (Direction.BACKWARD, last, 1)):
            sends, takes = (0, 1) if direction is Direction.FORWARD else (1, 0)
            senders = [] if stage == end else [stage + step]
            senders += [skip[sends] for skip in skips if skip[takes] == stage]
            found[direction, stage] = [(sender, _part(skips, sender, stage, sends=sends)) for sender in senders]
    return found


def _part(skips: tuple[tuple[int, int], ...], sender: int, taker: int, *, sends: int) -> int | None:
    """Return which of the values of a stage another one takes; None where it makes one value."""
    takers = [skip[1 - sends] for skip in skips if skip[sends] == sender]
    if not takers:
        return None
    return 1 + takers.index(taker) if taker in takers else 0


def _transfers(graph: TaskGraph) -> dict[tuple[int, int, int], int]:
    """Return the transfers by (direction, task that makes what they carry, task that takes it)."""
    found = {}
    targets = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    carried = (graph.edge_kind == EdgeKind.DATA) & (graph.edge_source >= graph.num_compute_tasks)
    for transfer, consumer in zip(graph.edge_source[carried].tolist(), targets[carried].tolist(), strict=True):
        producer = int(graph.edge_source[graph.edge_start[transfer]])
        found[int(graph.direction[transfer]), producer, consumer] = transfer
    return found


def _awaited(graph: TaskGraph) -> Iterator[tuple[int, int]]:
    """Yield (recomputation, transfer) where the recomputation waits for the gradient."""
    for task in np.flatnonzero(graph.kind == Kind.RECOMPUTE).tolist():
        for source in graph.sources(task).tolist():
            if graph.kind[source] == Kind.TRANSFER:
                yield task, source


def _reductions(graph: TaskGraph) -> Iterator[PlannedReduction]:
    """Yield those that are tasks of the graph."""
    takers: dict[int, list[int]] = {}
    common = set(_common_tasks(graph))
    for update in np.flatnonzero(graph.kind == Kind.UPDATE).tolist():
        for source in graph.sources(update).tolist():
            if graph.kind[source] == Kind.REDUCE and source not in common:
                takers.setdefault(source, []).append(update)
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


def _common_tasks(graph: TaskGraph) -> range:
    """Return the tasks through which all stages decide together; none on one device."""
    lanes = [graph.lane_range(number) for number, lane in enumerate(graph.lanes) if lane.over_model]
    return lanes[0] if lanes else range(0)


def _decisions(graph: TaskGraph) -> Iterator[PlannedDecision]:
    """Yield who waits at each moment at which all stages decide together: the updates behind the graph's edges."""
    if not graph.options.common_update:
        return
    updates = np.flatnonzero(graph.kind == Kind.UPDATE)
    common = _common_tasks(graph) or [LOCAL] * graph.program.num_mini_batches
    for version, task in enumerate(common, start=1):
        takers = updates[graph.version[updates] == version].tolist()
        assert task == LOCAL or all(task in graph.sources(update) for update in takers), "every update waits for its decision"
        devices = tuple(np.unique(graph.device[takers]).tolist())
        yield PlannedDecision(task, version, devices, tuple(takers))


def _local_ties(graph: TaskGraph, actions: list[PlannedAction]) -> Iterator[PlannedReduction]:
    """Yield the sums over ties whose stages all stand on one device: updates stand behind all gradients there."""
    hosts = graph.stage_devices() if graph.options.ties else ()
    local = [tie for tie in graph.options.ties if len({device for stage in tie for device in hosts[stage]}) == 1]
    last: dict[tuple[int, int], int] = {}
    updates: dict[tuple[int, int], int] = {}
    m = graph.program.num_micro_batches
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
