"""What one device makes and another needs: hand-overs between stages, and the transfers that carry those between devices.

    F(s, j) ──▶ F(s + 1, j)          over a link if the two stand on different devices, at no cost on one device
    B or I (s + 1, j) ──▶ B or I (s, j)   and, with `on-gradient`, ──▶ R(s, j)

Skip connections (a, b) add F(a) ──▶ F(b) and the gradient's way back, on a direct link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Direction
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.checks.verify import fault
from schedir.ir.graph_data import EdgeKind
from schedir.ir.program import Program
from schedir.lowering.edges import EdgeBuilder
from schedir.lowering.insertion import ComputeTasks


@dataclass(frozen=True, slots=True, eq=False)
class HandOvers:
    """Hand-overs: producer and consumer compute task of each, in the order of the producers."""

    producer: Ints
    consumer: Ints
    stage: Ints
    micro_batch: Ints
    direction: Ints


@dataclass(frozen=True, slots=True, eq=False)
class UsedLinks:
    """Where transfers run."""

    ends: list[tuple[int, int]]
    """(sender, receiver), sorted."""
    sizes: Ints
    """Transfers of each."""


def find_transfers(table: ActionTable, tasks: ComputeTasks, skips: tuple[tuple[int, int], ...]) -> tuple[HandOvers, UsedLinks]:
    """Return the hand-overs that need a transfer, link after link, and their links."""
    if skips or len(table.program.pairs):
        return _several_each(table, tasks, skips)
    return _one_each(table, tasks)


def _one_each(table: ActionTable, tasks: ComputeTasks) -> tuple[HandOvers, UsedLinks]:
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
    return HandOvers(producer, *(column[producer] for column in columns)), links


def _several_each(table: ActionTable, tasks: ComputeTasks, skips: tuple[tuple[int, int], ...]) -> tuple[HandOvers, UsedLinks]:
    """Return the transfers of any program."""
    hand_overs = _hand_overs(table, tasks, skips)
    chosen, links = _by_link(table, tasks, producer=hand_overs.producer, consumer=hand_overs.consumer)
    columns = (hand_overs.producer, hand_overs.consumer, hand_overs.stage, hand_overs.micro_batch, hand_overs.direction)
    return HandOvers(*(column[chosen] for column in columns)), links


def _hand_overs(table: ActionTable, tasks: ComputeTasks, skips: tuple[tuple[int, int], ...]) -> HandOvers:
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
    return HandOvers(
        producer=producer[order],
        consumer=consumer[order],
        stage=np.repeat(senders, total)[order],
        micro_batch=np.tile(np.arange(total, dtype=np.int32), len(senders))[order],
        direction=np.repeat(np.array(ways, np.int8), total)[order],
    )


def _by_link(table: ActionTable, tasks: ComputeTasks, *, producer: Ints, consumer: Ints) -> tuple[Ints, UsedLinks]:
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
    return remote[np.argsort(link, kind="stable")], UsedLinks(ends, np.bincount(link, minlength=len(ends)))


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


def add_transfer_edges(hand_overs: HandOvers, first: int, edges: EdgeBuilder, *, paired: bool, distinct: bool) -> Ints:
    """Add producer to transfer to consumer and return the transfers' tasks; without `distinct` a consumer may need several."""
    transfer = np.arange(first, first + len(hand_overs.producer))
    edges.add(hand_overs.producer, transfer, EdgeKind.DATA)
    if not paired:  # then nothing waits for both an output and a gradient
        edges.add(transfer, hand_overs.consumer, EdgeKind.DATA, distinct=distinct)
        return transfer
    for direction in Direction:
        chosen = hand_overs.direction == direction
        edges.add(transfer[chosen], hand_overs.consumer[chosen], EdgeKind.DATA, distinct=distinct)
    return transfer


def add_recompute_edges(
    table: ActionTable, tasks: ComputeTasks, hand_overs: HandOvers, *, transfer: Ints, edges: EdgeBuilder
) -> None:
    """Make recomputations wait for the gradient: an order edge, since they do not read it."""
    key_of_task = np.full(len(tasks.kind), -1, np.int64)
    present = np.flatnonzero(tasks.recompute_task >= 0)
    # R of a key waits for the transfer whose consumer is the key's B or I
    key_of_task[tasks.entry_task[table.gradient_row[present]]] = present
    backwards = hand_overs.direction == Direction.BACKWARD
    keys = key_of_task[hand_overs.consumer[backwards]]
    edges.add(transfer[backwards][keys >= 0], tasks.recompute_task[keys[keys >= 0]], EdgeKind.ORDER, distinct=False)
