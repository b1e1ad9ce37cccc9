"""Would a program still run if sends blocked until their receiver asks for them (rendezvous, as without send buffers)?

Behind a task, a device sends its results at once; before a task, it receives what the task needs. A blocking send ends when
the receiver has come to the receive. Plain 1F1B does not run so: device 0 stands in the send of 0F1, device 1 in the send of
1B0, and neither comes to its receive. Our executors buffer sends, so this is a property, and an error only when asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedir.errors import DeadlockError
from schedir.ir.action import Kind
from schedir.ir.deadlock import MOST_NAMED
from schedir.ir.graph import TaskGraph
from schedir.ir.grid import marked_grid
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
    scripts, parties = _scripts(graph)
    position = [0] * len(scripts)
    waiting: dict[int, list[int]] = {}
    runnable = list(range(len(scripts)))
    while runnable:
        device = runnable.pop()
        while position[device] < len(scripts[device]):
            # a send and its receive are one meeting of two, a reduction one of all its replicas: the last to come frees the others
            meeting = scripts[device][position[device]]
            present = waiting.setdefault(meeting, [])
            present.append(device)
            if len(present) < parties.get(meeting, 2):
                break
            del waiting[meeting]
            for other in present:
                position[other] += 1
            runnable.extend(other for other in present if other != device)
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


def _scripts(graph: TaskGraph) -> tuple[list[list[int]], dict[int, int]]:
    """Return for every device the transfers and reductions that it meets others in, and the parties of each reduction."""
    num_compute = graph.num_compute_tasks
    target = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    inbound = (graph.edge_source >= num_compute) & (target < num_compute)
    # backwards, because of several writes to one place of an array the last one stays
    meeting, user = graph.edge_source[inbound][::-1], target[inbound][::-1]
    first_user = np.full(graph.num_tasks, -1)
    first_user[meeting] = user  # of several users, as under on-gradient, the first comes to the receive
    transfer = np.flatnonzero(graph.kind == Kind.TRANSFER)
    sender = graph.edge_source[graph.edge_start[transfer]]
    reduced = graph.kind[meeting] == Kind.REDUCE
    # task t receives at 2t and sends at 2t + 1
    at = np.concatenate((2 * sender.astype(np.int64) + 1, 2 * first_user[transfer], 2 * user[reduced]))
    meetings = np.concatenate((transfer, transfer, meeting[reduced]))
    order = np.lexsort((meetings, at))
    bounds = np.searchsorted(at[order], 2 * graph.lane_start[: graph.program.num_devices + 1])
    scripts = [meetings[order[low:high]].tolist() for low, high in pairwise(bounds.tolist())]
    reductions, counts = np.unique(meeting[reduced], return_counts=True)
    return scripts, dict(zip(reductions.tolist(), counts.tolist(), strict=True))


def _blocked(graph: TaskGraph, transfer: int) -> BlockedSend:
    lane = graph.lanes[graph.task(transfer).lane]
    sender = int(graph.sources(transfer)[0])
    return BlockedSend(action=graph.label(sender), sender=lane.device, receiver=lane.peer)


def _row(program: Program, send: BlockedSend) -> int:
    """Return the entry whose result is sent."""
    order = [str(entry) for entry in program.order(send.sender)]
    return int(program.device_start[send.sender]) + order.index(send.action)
