"""Would a program still run if sends blocked until their receiver asks for them (rendezvous, as without send buffers)?

Behind a task, a device sends its results at once; before a task, it receives what the task needs. A blocking send ends when
the receiver has come to the receive. Plain 1F1B does not run so: device 0 stands in the send of 0F1, device 1 in the send of
1B0, and neither comes to its receive. Our executors buffer sends, so this is a property, and an error only when asked for.

Only sends block. To a reduction (over replicas, ties or the model) a device adds its gradient behind the task's sends and goes on;
the updates wait until all have. So where nothing is stuck in a send, nothing is stuck: a verified graph runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedir.errors import DeadlockError
from schedir.ir.action import Kind
from schedir.ir.checks.deadlock import MOST_NAMED
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.grid import marked_grid
from schedir.ir.program import Program


@dataclass(frozen=True, slots=True)
class BlockedSend:
    """A send that never ends."""

    action: str
    """Text of the action whose result is sent: `0F1`."""
    sender: int
    """Device that stands in the send."""
    receiver: int
    """Device that never comes to the receive."""

    def __str__(self) -> str:
        return f"device {self.sender} sends {self.action} to device {self.receiver}"


def rendezvous_deadlock(graph: TaskGraph) -> tuple[BlockedSend, ...]:
    """Return the sends that never end if sends block, by sender; empty if the program runs to its end. Linear in tasks."""
    waiting = _Run(graph).waiting_at_the_end()
    stuck = {transfer: devices for transfer, devices in waiting.items() if graph.kind[transfer] == Kind.TRANSFER}
    sends = [transfer for transfer, devices in stuck.items() if int(graph.device[transfer]) in devices]
    assert sends or not waiting, "a graph that is verified can only be held up by its sends"
    return tuple(sorted((_blocked(graph, transfer) for transfer in sends), key=lambda send: send.sender))


def check_rendezvous(graph: TaskGraph) -> None:
    """Raise DeadlockError, with the sends that block each other marked in its grid, if the program needs buffered sends."""
    sends = rendezvous_deadlock(graph)
    if not sends:
        return
    program = graph.program
    named = "; ".join(map(str, sends[:MOST_NAMED])) + ("; ..." if len(sends) > MOST_NAMED else "")
    rows = [_row(program, send) for send in sends]
    place = "" if program.origin is None else program.origin.place()
    raise DeadlockError(
        f"{place}deadlock under blocking sends: {named}: no receiver comes to its receive, so use buffered sends or another order",
        marked_grid(program, rows, mark="its send never ends"),
    )


class _Run:
    """A run of all devices at once, each as far as it can go.

    Every device steps through the transfers and reductions that its tasks meet:

        send, receive     enters and stays until the other side has entered, too
        add to a sum      enters
        update            stays until all gradients are added
    """

    def __init__(self, graph: TaskGraph) -> None:
        self._lacking = dict.fromkeys(np.flatnonzero(graph.kind == Kind.TRANSFER).tolist(), 2)
        self._fed: dict[int, int] = {}
        for reduction in np.flatnonzero(graph.kind == Kind.REDUCE).tolist():
            sources = graph.sources(reduction)
            self._lacking[reduction] = len(sources)
            # sums over replicas and ties feed what all stages decide by, each its mini-batch's, without a device in between
            self._fed.update(dict.fromkeys(sources[sources >= graph.num_compute_tasks].tolist(), reduction))
        self._scripts = _scripts(graph)
        self._waiting: dict[int, list[int]] = {}
        self._runnable = list(range(len(self._scripts)))

    def waiting_at_the_end(self) -> dict[int, list[int]]:
        """Return the devices that stay for ever, by the transfer or reduction in which they do."""
        while self._runnable:
            device = self._runnable.pop()
            for task, enters, stays in self._scripts[device]:
                if enters:
                    self._enter(task)
                if stays and self._lacking[task]:
                    self._waiting.setdefault(task, []).append(device)
                    break
        return self._waiting

    def _enter(self, task: int) -> None:
        self._lacking[task] -= 1
        if not self._lacking[task]:
            # whoever stays in it goes on with the next step: its script is an iterator, which is past this one
            self._runnable.extend(self._waiting.pop(task, ()))
            if task in self._fed:
                self._enter(self._fed[task])


def _scripts(graph: TaskGraph) -> list[Iterator[tuple[int, bool, bool]]]:
    """Return for every device its steps in order: a transfer or reduction, whether it enters it, whether it stays for its end."""
    num_compute = graph.num_compute_tasks
    target = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    inbound = (graph.edge_source >= num_compute) & (target < num_compute)
    # backwards, because of several writes to one place of an array the last one stays
    met, user = graph.edge_source[inbound][::-1], target[inbound][::-1]
    first_user = np.full(graph.num_tasks, -1)
    first_user[met] = user  # of several users, as under on-gradient, the first comes to the receive
    transfer = np.flatnonzero(graph.kind == Kind.TRANSFER)
    sender = graph.edge_source[graph.edge_start[transfer]]
    updates = graph.kind[met] == Kind.REDUCE
    adds = (graph.kind[target] == Kind.REDUCE) & (graph.edge_source < num_compute)
    # (place, task, enters, stays): task t receives and waits at 2t; at 2t + 1 it sends, then adds, by the numbers of the tasks
    parts = (
        (2 * sender.astype(np.int64) + 1, transfer, True, True),
        (2 * first_user[transfer], transfer, True, True),
        (2 * graph.edge_source[adds].astype(np.int64) + 1, target[adds], True, False),
        (2 * user[updates], met[updates], False, True),
    )
    at, task, enters, stays = (
        np.concatenate([np.broadcast_to(part[column], part[1].shape) for part in parts]) for column in range(4)
    )
    order = np.lexsort((task, at))
    bounds = np.searchsorted(at[order], 2 * graph.lane_start[: graph.program.num_devices + 1])
    columns = [column[order].tolist() for column in (task, enters, stays)]
    return [zip(*(column[low:high] for column in columns), strict=True) for low, high in pairwise(bounds.tolist())]


def _blocked(graph: TaskGraph, transfer: int) -> BlockedSend:
    lane = graph.lanes[graph.task(transfer).lane]
    sender = int(graph.sources(transfer)[0])
    return BlockedSend(action=graph.label(sender), sender=lane.device, receiver=lane.peer)


def _row(program: Program, send: BlockedSend) -> int:
    """Return the entry whose result is sent."""
    order = [str(entry) for entry in program.order(send.sender)]
    return int(program.device_start[send.sender]) + order.index(send.action)
