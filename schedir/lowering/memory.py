"""What every task takes and gives back of a device's memory, in counts; a cost model gives the bytes of a unit.

| class                         | taken                                         | given back                                |
|-------------------------------|-----------------------------------------------|-------------------------------------------|
| weights, gradients, optimizer | before the run, per stage on every host of it | never                                     |
| optimizer, of a predictor     | the same, where weights are predicted         | never                                     |
| versions (true)               | end of the update that replaces a version     | end of the version's last reader          |
| versions (predicted)          | end of the prediction                         | end of its last reader                    |
| activations                   | start of F: the full set, or the boundary     | end of B; split: what W does not need at  |
| recomputed                    | start of R, beside the boundary               | the end of I, the rest at the end of W    |
| transfer_buffers, sender      | end of the task that makes the message        | the link has sent it                      |
| transfer_buffers, receiver    | start of the transfer                         | start of F (it becomes the boundary), or  |
|                               |                                               | end of B, I or pair that reads a gradient |
| workspace                     | start of F, B, I, W, R; both halves of a pair | its end                                   |

Between two stages on one device a message lies in one buffer from the maker's end to the reader's start or end. An output that
the backward needs is part of the activations, so its buffer is freed when it is sent. What goes over a skip connection has buffers
at its two ends only. Tied weights, and the optimizer's share of them, lie once on a device, however many of its stages hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind
from schedir.ir.skips import NO_SKIP, skip_sources
from schedir.lowering.effects import EffectBuilder, MemoryEffects, Unit, When
from schedir.timeline.timeline import MemoryClass


def memory_effects(graph: TaskGraph) -> MemoryEffects:
    """Return the memory effects of all tasks, by array operations; linear in tasks and edges."""
    effects = EffectBuilder()
    actions = _actions(graph)
    _add_resident(effects, graph)
    _add_versions(effects, graph, actions)
    _add_activations(effects, actions)
    _add_workspace(effects, actions)
    _add_transfers(effects, graph)
    _add_local(effects, graph, actions)
    return effects.sorted(graph.lane_start[: graph.program.num_devices + 1])


@dataclass(frozen=True, slots=True, eq=False)
class _Actions:
    """All actions of the compute lanes, halves of pairs apart, and where they stand by key (stage, micro-batch)."""

    task: Ints
    kind: Ints
    stage: Ints
    micro_batch: Ints
    version: Ints
    predicted_by: Ints
    forward: Ints
    """Task of F, int64 (num_stages, total micro-batches); so are the next three."""
    gradient: Ints
    """Task of B or I."""
    last: Ints
    """Task of B or W."""
    recompute: Ints
    """Task of R, -1 where there is none."""


def _actions(graph: TaskGraph) -> _Actions:
    pairs, compute = graph.pairs, slice(0, graph.num_compute_tasks)
    # a pair's own columns are its forward's; its backward stands behind all tasks, under the same task number
    kind = np.where(graph.kind[compute] == Kind.OVERLAPPED, np.int8(Kind.FORWARD), graph.kind[compute])
    task = np.concatenate((np.arange(graph.num_compute_tasks), pairs.task))
    kind = np.concatenate((kind, pairs.kind))
    stage = np.concatenate((graph.stage[compute], pairs.stage))
    micro_batch = np.concatenate((graph.micro_batch[compute], pairs.micro_batch))

    def table(*kinds: Kind) -> Ints:
        found = np.full((graph.program.num_stages, graph.program.total_micro_batches), -1, np.int64)
        chosen = np.flatnonzero(np.isin(kind, kinds))
        found[stage[chosen], micro_batch[chosen]] = task[chosen]
        return found

    return _Actions(
        task=task,
        kind=kind,
        stage=stage,
        micro_batch=micro_batch,
        version=np.concatenate((graph.version[compute], pairs.version)),
        predicted_by=np.concatenate((graph.predicted_by[compute], pairs.predicted_by)),
        forward=table(Kind.FORWARD),
        gradient=table(Kind.BACKWARD, Kind.INPUT_GRAD),
        last=table(Kind.BACKWARD, Kind.WEIGHT_GRAD),
        recompute=table(Kind.RECOMPUTE),
    )


def _add_resident(effects: EffectBuilder, graph: TaskGraph) -> None:
    """Each replica of a stage holds its own weights, gradients and optimizer."""
    hosts = [(stage, device) for stage, devices in enumerate(graph.stage_devices()) for device in devices]
    stage, device = np.array(hosts, np.int64).reshape(-1, 2).T
    first = graph.lane_start[device]
    for memory_class, unit in (
        (MemoryClass.WEIGHTS, Unit.WEIGHTS),
        (MemoryClass.GRADIENTS, Unit.GRADIENTS),
        (MemoryClass.OPTIMIZER, Unit.OPTIMIZER),
    ):
        effects.keep((memory_class, unit), stage, first)
    # of the last update something is kept, by which weights are predicted
    predicts = np.isin(stage, graph.stage[graph.kind == Kind.PREDICT])
    effects.keep((MemoryClass.OPTIMIZER, Unit.PREDICTOR), stage[predicts], first[predicts])
    if graph.options.ties:
        _spare_tied(effects, graph, hosts)


def _spare_tied(effects: EffectBuilder, graph: TaskGraph, hosts: list[tuple[int, int]]) -> None:
    """Of the stages of a tie on one device only the lowest has tied weights and their optimizer; each has its own gradients."""
    again = [
        (stage, device)
        for tie in graph.options.ties
        for stage, device in hosts
        if stage in tie and any(other in tie and other < stage for other, place in hosts if place == device)
    ]
    stage, device = np.array(again, np.int64).reshape(-1, 2).T
    for memory_class, unit in ((MemoryClass.WEIGHTS, Unit.TIED_WEIGHTS), (MemoryClass.OPTIMIZER, Unit.TIED_OPTIMIZER)):
        effects.spare((memory_class, unit), stage, graph.lane_start[device])


def _add_versions(effects: EffectBuilder, graph: TaskGraph, actions: _Actions) -> None:
    """Count parameter sets beyond the current one: versions still read after their update, and predictions."""
    updates = np.flatnonzero(graph.kind[: graph.num_compute_tasks] == Kind.UPDATE)
    home = graph.device.astype(np.int64) * graph.program.num_stages
    # only pairs of device and stage that occur: a table of all of them would grow with their product
    homes, where = np.unique(home[actions.task] + actions.stage, return_inverse=True)
    num_versions = int(graph.version[updates].max(initial=0)) + 1
    reads = np.flatnonzero((actions.kind != Kind.UPDATE) & (actions.predicted_by < 0))
    last_reader = np.full(len(homes) * num_versions, -1, np.int64)
    np.maximum.at(last_reader, where[reads] * num_versions + actions.version[reads], actions.task[reads])
    # of every update the version before it: the table's row is home by home, version by version
    replaced = where[updates] * num_versions + graph.version[updates] - 1
    # only what is read behind the update that replaces it is a set beyond the current one
    late = last_reader[replaced] > updates
    _hold_weights(effects, graph, maker=updates[late], last_reader=last_reader[replaced[late]])
    predictions = np.flatnonzero(graph.kind[: graph.num_compute_tasks] == Kind.PREDICT)
    last_user = np.full(graph.num_compute_tasks, -1, np.int64)
    reads = np.flatnonzero(actions.predicted_by >= 0)
    np.maximum.at(last_user, actions.predicted_by[reads], actions.task[reads])
    _hold_weights(effects, graph, maker=predictions, last_reader=last_user[predictions])


def _hold_weights(effects: EffectBuilder, graph: TaskGraph, *, maker: Ints, last_reader: Ints) -> None:
    owner = (graph.stage[maker], np.full(len(maker), -1))
    effects.hold((MemoryClass.VERSIONS, Unit.WEIGHTS), owner, taken=When.ends(maker), given=When.ends(last_reader))


def _add_activations(effects: EffectBuilder, actions: _Actions) -> None:
    again = actions.recompute >= 0
    split = actions.last != actions.gradient
    for chosen, first, held, freed in (
        (~again, actions.forward, (MemoryClass.ACTIVATIONS, Unit.ACTIVATIONS), Unit.FREED_ACTIVATIONS),
        (again, actions.forward, (MemoryClass.ACTIVATIONS, Unit.BOUNDARY), Unit.FREED_BOUNDARY),
        (again, actions.recompute, (MemoryClass.RECOMPUTED, Unit.RECOMPUTED), Unit.FREED_RECOMPUTED),
    ):
        taken, given = When.starts(first[chosen]), When.ends(actions.last[chosen])
        effects.hold(held, _owners(chosen), taken=taken, given=given)
        early = chosen & split  # a part is away from the end of I to the end of W, where the whole is given back
        away, back = When.ends(actions.gradient[early]), When.ends(actions.last[early])
        effects.hold((held[0], freed), _owners(early), taken=back, given=away)


def _owners(chosen: Ints) -> tuple[Ints, Ints]:
    """Return (stage, micro-batch) of the keys that a table (num_stages, total micro-batches) marks."""
    stage, micro_batch = np.nonzero(chosen)
    return stage, micro_batch


_WORKING = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.RECOMPUTE)


def _add_workspace(effects: EffectBuilder, actions: _Actions) -> None:
    working = np.flatnonzero(np.isin(actions.kind, _WORKING))
    task, owner = actions.task[working], (actions.stage[working], actions.micro_batch[working])
    effects.hold((MemoryClass.WORKSPACE, Unit.WORKSPACE), owner, taken=When.starts(task), given=When.ends(task))


_MESSAGE = {Direction.FORWARD: Unit.OUTPUT, Direction.BACKWARD: Unit.INPUT_GRADIENT}
"""What the sending stage sends, by direction."""


def _add_transfers(effects: EffectBuilder, graph: TaskGraph) -> None:
    """Buffers at both ends of every transfer. Each has one maker and one reader of what it carries."""
    first = graph.num_compute_tasks
    target = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    carried = (graph.edge_kind == EdgeKind.DATA) & (graph.edge_source >= first) & (target < first)
    reader_of = np.full(graph.num_tasks, -1, np.int64)
    reader_of[graph.edge_source[carried]] = target[carried]
    transfers = np.flatnonzero(graph.kind == Kind.TRANSFER)
    source = skip_sources(graph)
    for direction, unit in _MESSAGE.items():
        ways = [(unit, transfers[(graph.direction[transfers] == direction) & (source == NO_SKIP)], graph.stage)]
        if graph.options.skips:
            of_skip = (graph.direction[transfers] == direction) & (source != NO_SKIP)
            owners = np.full(graph.num_tasks, NO_SKIP)
            owners[transfers] = source
            ways.append((Unit.SKIP, transfers[of_skip], owners))
        for what, transfer, owner in ways:
            # the one source that a transfer has
            maker = graph.edge_source[graph.edge_start[transfer]].astype(np.int64)
            reader, held = reader_of[transfer], (MemoryClass.TRANSFER_BUFFERS, what)
            key = owner[transfer], graph.micro_batch[transfer]
            effects.hold(held, key, taken=When.ends(maker), given=When.sent(transfer, maker))
            effects.hold(held, key, taken=When.under_way(transfer, reader), given=_read(reader, direction))


def _read(reader: Ints, direction: Direction) -> When:
    """Return when a message is given back: an activation becomes the boundary as its reader starts, a gradient stays."""
    return When.starts(reader) if direction is Direction.FORWARD else When.ends(reader)


def _add_local(effects: EffectBuilder, graph: TaskGraph, actions: _Actions) -> None:
    """One buffer for every message between two stages on one device; no task and no edge stands for it."""
    stages = np.arange(graph.program.num_stages)
    cuts = [(stages[:-1], stages[1:], False), *((np.array([a]), np.array([b]), True) for a, b in graph.options.skips)]
    for lower, upper, is_skip in cuts:
        for direction, table, (source, target) in (
            (Direction.FORWARD, actions.forward, (lower, upper)),
            (Direction.BACKWARD, actions.gradient, (upper, lower)),
        ):
            maker, reader = table[source], table[target]
            # by (stage, micro-batch), since replicas of a stage may stand elsewhere
            here = graph.device[maker] == graph.device[reader]
            row, micro_batch = np.nonzero(here)
            unit, owners = (Unit.SKIP, lower) if is_skip else (_MESSAGE[direction], source)
            what, owner = (MemoryClass.TRANSFER_BUFFERS, unit), (owners[row], micro_batch)
            effects.hold(what, owner, taken=When.ends(maker[here]), given=_read(reader[here], direction))
