"""The workers protocol in a process that runs one device's lanes: one computing thread, and lanes to the other processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from executor.home import HOST, Home
from executor.run.clock import Recorder, now
from executor.workers.base import Exchange, ExchangePlan, Port
from executor.workers.distributed.causes import error_of
from executor.workers.distributed.lanes import Key
from executor.workers.distributed.mesh import Mesh
from executor.workers.distributed.ports import ReductionPlan, RemoteChannel, RemoteReduction
from executor.workers.ports import Slot, WaitFor
from executor.workers.threads import ThreadWorkers
from schedir.ir.graph import TaskGraph


class DistributedWorkers:
    """This process's part of a graph."""

    def __init__(self, graph: TaskGraph, recorder: Recorder, *, mesh: Mesh, threads: ThreadWorkers) -> None:
        self.devices = threads.devices
        """The one device of this process."""
        self._graph, self._recorder, self._mesh, self._threads = graph, recorder, mesh, threads
        self._lane = graph.lane.tolist()
        self._channels: dict[int, RemoteChannel] = {}
        self._exchanges: dict[int, RemoteReduction] = {}
        mesh.serve(self._deliver, graph.label)
        mesh.watch.listen(lambda cause: threads.fail(error_of(cause)))

    def home(self, device: int) -> Home:  # noqa: ARG002 - one signature for all
        """Return the memory of this process."""
        return HOST

    def channel(self, task: int, name: str) -> Port:
        """Return the port of a transfer that starts or ends here."""
        lane = self._graph.lanes[self._lane[task]]
        sends = lane.device == self._mesh.number
        outgoing = self._mesh.outgoing(lane.peer, self._lane[task]) if sends else None
        if not sends:
            self._mesh.incoming(lane.device, self._lane[task])
        wait_for = self._wait_for(lane.device)
        name = f"{name}, from {self._mesh.members[lane.device]}"
        port = self._channels[task] = RemoteChannel(wait_for, name, key=(task, 0), recorder=self._recorder, lane=outgoing)
        return port

    def exchange(self, plan: ExchangePlan) -> Exchange:
        """Return the ports of a reduction in which a replica of this process takes part."""
        own, lane = self._mesh.number, self._lane[plan.task]
        lanes = [self._mesh.outgoing(taker, lane) for taker in plan.takers if taker != own and own in plan.members]
        slots = [self._slot(member, lane, plan.name) for member in plan.members]
        made = self._exchanges[plan.task] = RemoteReduction((plan.task, 0), ReductionPlan(plan.total, slots, lanes), self._recorder)
        return made

    def _slot(self, member: int, lane: int, name: str) -> Slot:
        """Return where the share of a member arrives."""
        if member != self._mesh.number:
            self._mesh.incoming(member, lane)
        return Slot(self._wait_for(member), f"{name}, from {self._mesh.members[member]}")

    def run(self, work: Sequence[Callable[[], None]]) -> None:
        """Run this process's device; raise its own error, or what another process's failure makes of it."""
        self._threads.run(work)

    def check(self, device: int, task: int) -> None:
        """Say which task is next; raise Halted if any process has failed."""
        self._mesh.watch.position.task = task
        self._threads.check(device, task)

    def close(self) -> None:
        """End the computing thread; the lanes belong to the mesh."""
        self._threads.close()

    def _wait_for(self, peer: int) -> WaitFor:
        return partial(self._wait, peer)

    def _wait(self, peer: int, arrived: threading.Lock, name: str) -> None:
        if arrived.acquire(blocking=False):
            return
        position = self._mesh.watch.position
        position.waits_for = peer if peer != self._mesh.number else -1
        self._threads.wait_for(arrived, name)  # if it raises, the position says for whom it waited
        position.waits_for = -1

    def _deliver(self, key: Key, value: Any) -> None:
        task, part = key
        if task in self._channels:
            self._channels[task].arrive(value, now())
        else:
            self._exchanges[task].arrive(part, value)
