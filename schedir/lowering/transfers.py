"""Connect the compute tasks: transfers between devices, reductions over replicas, and the edges of the graph.

    F(s, j) ──▶ F(s + 1, j)          over a link if the two stand on different devices, at no cost on one device
    B or I (s + 1, j) ──▶ B or I (s, j)   and, with `on-gradient`, ──▶ R(s, j)
    last gradients of all replicas ──▶ reduction ──▶ U on every replica
    last gradients of all stages of a tie ──▶ reduction ──▶ U of each, if they stand on several devices
    last gradients of all stages, or what sums them ──▶ reduction ──▶ every U     for a common update, on several devices

That last reduction is one number that all devices exchange. It is a task of its own, so p stages cost 2p edges a mini-batch and not
p², and a cluster can say how long the exchange takes.

Skip connections (a, b) add F(a) ──▶ F(b) and the gradient's way back, on a direct link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.action_table import ActionTable
from schedir.ir.arrays import Ints
from schedir.ir.compile_options import CompileOptions
from schedir.ir.graph import EdgeKind
from schedir.ir.lanes import Lane, LaneKind, link_lane
from schedir.ir.program import Program
from schedir.ir.verify import fault
from schedir.lowering.insertion import ComputeTasks
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


@dataclass(frozen=True, slots=True, eq=False)
class _Sends:
    """Hand-overs: producer and consumer compute task of each, in the order of the producers."""

    producer: Ints
    consumer: Ints
    stage: Ints
    micro_batch: Ints
    direction: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Links:
    """Where transfers run."""

    ends: list[tuple[int, int]]
    """(sender, receiver), sorted."""
    sizes: Ints
    """Transfers of each."""


def connect(table: ActionTable, tasks: ComputeTasks, updates: Updates, *, options: CompileOptions) -> Wires:
    """Return all tasks between devices and all edges."""
    paired, skips = len(table.program.pairs) > 0, options.skips
    sends, links = _several_each(table, tasks, skips) if paired or skips else _one_each(table, tasks)
    reductions = [*_over_replicas(table, tasks, updates), *_over_ties(table, tasks, updates, ties=options.ties)]
    if options.common_update and table.program.num_devices > 1:
        sums = reductions.copy()
        reductions += _over_model(table, tasks, updates, sums=sums, first=len(tasks.kind) + len(sends.producer))
    edges = EdgeBuilder(len(tasks.kind) + len(sends.producer) + len(reductions))
    transfer = _add_transfer_edges(sends, len(tasks.kind), edges, paired=paired, distinct=not skips)
    if options.recompute_start == "on-gradient":
        _add_recompute_edges(table, tasks, sends, transfer=transfer, edges=edges)
    _add_reduction_edges(reductions, len(tasks.kind) + len(transfer), edges)
    return _wires(tasks, sends, links=links, reductions=reductions, edges=edges)


def _by_link(table: ActionTable, tasks: ComputeTasks, *, producer: Ints, consumer: Ints) -> tuple[Ints, _Links]:
    """Return which hand-overs need a transfer, link after link, and their links; the others are checked and free."""
    sender, receiver = tasks.device[producer], tasks.device[consumer]
    remote = np.flatnonzero(sender != receiver)
    # what stays on one device needs no task and no edge: the device's order is enough
    if len(remote) < len(sender):
        local = np.flatnonzero(sender == receiver)
        _check_local(table.program, tasks, producer=producer[local], consumer=consumer[local])
        sender, receiver = sender[remote], receiver[remote]
    # by link; the stable sort leaves those of one link in the order of their makers, in which they are sent
    link, ends = _links(table.program.num_devices, sender, receiver)
    return remote[np.argsort(link, kind="stable")], _Links(ends, np.bincount(link, minlength=len(ends)))


def _add_transfer_edges(sends: _Sends, first: int, edges: EdgeBuilder, *, paired: bool, distinct: bool) -> Ints:
    """Add producer to transfer to consumer and return the transfers' tasks; without `distinct` a consumer may need several."""
    transfer = np.arange(first, first + len(sends.producer))
    edges.add(sends.producer, transfer, EdgeKind.DATA)
    if not paired:  # then nothing waits for both an output and a gradient
        edges.add(transfer, sends.consumer, EdgeKind.DATA, distinct=distinct)
        return transfer
    for direction in Direction:
        chosen = sends.direction == direction
        edges.add(transfer[chosen], sends.consumer[chosen], EdgeKind.DATA, distinct=distinct)
    return transfer


def _add_reduction_edges(reductions: Sequence[_Reduction], first: int, edges: EdgeBuilder) -> None:
    """Add last gradients to reduction to updates, also to those of replicas without a share."""
    for task, reduction in enumerate(reductions, start=first):
        edges.add(reduction.sources, np.full(len(reduction.sources), task), EdgeKind.REDUCE, distinct=False)
        edges.add(np.full(len(reduction.updates), task), reduction.updates, EdgeKind.REDUCE)


def _wires(tasks: ComputeTasks, sends: _Sends, *, links: _Links, reductions: Sequence[_Reduction], edges: EdgeBuilder) -> Wires:
    """Put the columns together: transfers link after link, then reductions stage after stage."""
    start, source, kind = edges.build()
    size = len(sends.producer)
    # lanes in the order in which their first reductions come, so their tasks are numbered lane by lane
    of_lane = Counter(reduction.lane for reduction in reductions)
    lanes = [*(link_lane(*ends) for ends in links.ends), *of_lane]
    return Wires(
        lanes=tuple(lanes),
        lane_sizes=np.array([*links.sizes.tolist(), *of_lane.values()], np.int64),
        kind=_joined(Kind.TRANSFER, [Kind.REDUCE for _ in reductions], size=size),
        stage=_joined(sends.stage, [r.stage for r in reductions], size=size),
        micro_batch=_joined(sends.micro_batch, [r.micro_batch for r in reductions], size=size),
        device=_joined(tasks.device[sends.producer], [r.device for r in reductions], size=size),
        direction=_joined(sends.direction, [Direction.BACKWARD for _ in reductions], size=size),
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


def _one_each(table: ActionTable, tasks: ComputeTasks) -> tuple[_Sends, _Links]:
    """Return the transfers of a chain without overlapped pairs, where a task makes at most one result: no sort is needed."""
    # by task: of every output the forward above, of every gradient the one below
    consumer = np.full(len(tasks.kind), -1)
    forward, gradient = (table.by_stage(tasks.entry_task[row]) for row in (table.forward_row, table.gradient_row))
    consumer[forward[:-1]] = forward[1:]
    consumer[gradient[1:]] = gradient[:-1]
    producer = np.flatnonzero(consumer >= 0)
    chosen, links = _by_link(table, tasks, producer=producer, consumer=consumer[producer])
    producer = producer[chosen]
    columns = (consumer, tasks.stage, tasks.micro_batch, tasks.direction)
    return _Sends(producer, *(column[producer] for column in columns)), links


def _several_each(table: ActionTable, tasks: ComputeTasks, skips: tuple[tuple[int, int], ...]) -> tuple[_Sends, _Links]:
    """Return the transfers of any program."""
    sends = _sends(table, tasks, skips)
    chosen, links = _by_link(table, tasks, producer=sends.producer, consumer=sends.consumer)
    columns = (sends.producer, sends.consumer, sends.stage, sends.micro_batch, sends.direction)
    return _Sends(*(column[chosen] for column in columns)), links


def _sends(table: ActionTable, tasks: ComputeTasks, skips: tuple[tuple[int, int], ...]) -> _Sends:
    """Return all hand-overs between stages, sorted by producer."""
    program = table.program
    forward = table.by_stage(tasks.entry_task[table.forward_row])
    gradient = table.by_stage(tasks.entry_task[table.gradient_row])
    stages = np.arange(program.num_stages, dtype=np.int32)
    # all neighbours at once, then one skip after the other
    cuts = [(slice(0, -1), slice(1, None))] + [(slice(a, a + 1), slice(b, b + 1)) for a, b in skips]
    producer = np.concatenate([half.reshape(-1) for source, target in cuts for half in (forward[source], gradient[target])])
    consumer = np.concatenate([half.reshape(-1) for source, target in cuts for half in (forward[target], gradient[source])])
    senders = np.concatenate([half for source, target in cuts for half in (stages[source], stages[target])])
    ways = [way for source, _ in cuts for way in Direction for _ in stages[source]]
    total = program.total_micro_batches
    order = np.argsort(producer, kind="stable")
    return _Sends(
        producer=producer[order],
        consumer=consumer[order],
        stage=np.repeat(senders, total)[order],
        micro_batch=np.tile(np.arange(total, dtype=np.int32), len(senders))[order],
        direction=np.repeat(np.array(ways, np.int8), total)[order],
    )


def _check_local(program: Program, tasks: ComputeTasks, *, producer: Ints, consumer: Ints) -> None:
    """On one device an action that consumes must stand behind the one that makes (a pair cannot feed itself)."""
    wrong = np.flatnonzero(producer >= consumer)
    if len(wrong):
        maker, user = int(producer[wrong[0]]), int(consumer[wrong[0]])
        behind, before = (program.entry(int(np.searchsorted(tasks.entry_task, task))) for task in (maker, user))
        needs = "which it overlaps" if maker == user else "which stands behind it"
        row = int(np.searchsorted(tasks.entry_task, user))
        raise fault(program, f"{before} waits for ever: it needs the result of {behind}, {needs}", row)


def _links(num_devices: int, sender: Ints, receiver: Ints) -> tuple[Ints, list[tuple[int, int]]]:
    """Return the number of each transfer's link and the links as (sender, receiver), sorted."""
    key = sender.astype(np.int64) * num_devices + receiver
    used = np.flatnonzero(np.bincount(key, minlength=1))
    # numpy sorts 16 bits stably in linear time
    number = np.zeros(int(used[-1]) + 1 if len(used) else 1, np.uint16 if len(used) < 2**16 else np.int64)
    number[used] = np.arange(len(used))
    return number[key], [divmod(value, num_devices) for value in used.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class _Reduction:
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


def _over_replicas(table: ActionTable, tasks: ComputeTasks, updates: Updates) -> Iterator[_Reduction]:
    """Yield one per update of every replicated stage, by stage, then version."""
    for stage in updates.replicated:
        yield from _sums(table, tasks, updates, stages=(stage,))


def _over_ties(
    table: ActionTable, tasks: ComputeTasks, updates: Updates, *, ties: tuple[tuple[int, ...], ...]
) -> Iterator[_Reduction]:
    """Yield one per update of every tie; on one device the update's place, behind all gradients, is enough."""
    for tie in ties:
        if len(np.unique(updates.device[np.isin(updates.stage, tie)])) > 1:
            yield from (replace(reduction, tie=tie) for reduction in _sums(table, tasks, updates, stages=tie))


def _sums(table: ActionTable, tasks: ComputeTasks, updates: Updates, *, stages: tuple[int, ...]) -> Iterator[_Reduction]:
    """Yield the sum of every update over all devices of some stages, which are updated by the same rounds."""
    at = np.flatnonzero(np.isin(updates.stage, stages))
    per_update = int(updates.round_size[stages[0]]) * table.program.num_micro_batches
    for version in range(1, int(updates.version[at].max()) + 1):
        makers = at[updates.version[at] == version]
        sources = [
            row for stage in stages for row in _last_rows(table, stage, slice((version - 1) * per_update, version * per_update))
        ]
        yield _Reduction(
            stage=stages[0],
            device=int(updates.device[at].min()),
            micro_batch=int(updates.micro_batch[makers[0]]),
            version=version,
            sources=tasks.entry_task[np.array(sources)],
            updates=tasks.update_task[makers],
        )


def _over_model(
    table: ActionTable, tasks: ComputeTasks, updates: Updates, *, sums: Sequence[_Reduction], first: int
) -> Iterator[_Reduction]:
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
        yield _Reduction(
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


def _add_recompute_edges(table: ActionTable, tasks: ComputeTasks, sends: _Sends, *, transfer: Ints, edges: EdgeBuilder) -> None:
    """Make recomputations wait for the gradient: an order edge, since they do not read it."""
    key_of_task = np.full(len(tasks.kind), -1, np.int64)
    present = np.flatnonzero(tasks.recompute_task >= 0)
    # R of a key waits for the transfer whose consumer is the key's B or I
    key_of_task[tasks.entry_task[table.gradient_row[present]]] = present
    backwards = sends.direction == Direction.BACKWARD
    keys = key_of_task[sends.consumer[backwards]]
    edges.add(transfer[backwards][keys >= 0], tasks.recompute_task[keys[keys >= 0]], EdgeKind.ORDER, distinct=False)


class EdgeBuilder:
    """Collects edges in groups and sorts them by target by counting, without a sort."""

    def __init__(self, num_tasks: int) -> None:
        self._groups: list[tuple[Ints, Ints, EdgeKind, bool]] = []
        self._counts = np.zeros(num_tasks, np.int32)

    def add(self, source: Ints, target: Ints, kind: EdgeKind, *, distinct: bool = True) -> None:
        """Add edges; `distinct` promises that no target stands twice in this group."""
        # `+=` counts a target that stands several times in one index only once
        self._groups.append((source, target, kind, distinct))
        if distinct:
            self._counts[target] += 1
        else:
            np.add.at(self._counts, target, 1)

    def build(self) -> tuple[Ints, Ints, Ints]:
        """Return edge_start, edge_source and edge_kind."""
        start = np.zeros(len(self._counts) + 1, np.int64)
        np.cumsum(self._counts, out=start[1:])
        return start, *(self._one_each() if self._counts.max(initial=0) <= 1 else self._several(start))

    def _one_each(self) -> tuple[Ints, Ints]:
        """Return sources and kinds where no task has several."""
        sources, kinds = np.empty(len(self._counts), np.int32), np.empty(len(self._counts), np.int8)
        for source, target, kind, _ in self._groups:
            sources[target], kinds[target] = source, kind
        present = self._counts > 0
        return sources[present], kinds[present]

    def _several(self, start: Ints) -> tuple[Ints, Ints]:
        #   targets   3 1 3       counts by task  0 1 0 2       start  0 0 1 1 3
        #   slots     1 0 2       the next free one of each target, which `fill` keeps
        fill = start[:-1].copy()
        sources, kinds = np.empty(int(start[-1]), np.int32), np.empty(int(start[-1]), np.int8)
        for source, target, kind, distinct in self._groups:
            if distinct:
                slot = fill[target]
                fill[target] += 1
            else:
                order = np.argsort(target, kind="stable")
                first = np.searchsorted(target[order], target[order], side="left")
                slot = np.empty(len(target), np.int64)
                slot[order] = fill[target[order]] + np.arange(len(target)) - first
                np.add.at(fill, target, 1)
            sources[slot], kinds[slot] = source, kind
        return sources, kinds
