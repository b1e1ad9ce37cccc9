"""The workers protocol in a process of a trainer: tasks have names that never end, and a value may arrive before its port is made.

Everything from one process to another goes through one lane: transfers, shares of reductions, losses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from executor.home import HOST, Home
from executor.run.clock import Recorder, now
from executor.workers.base import Exchange, ExchangePlan, Port
from executor.workers.distributed.causes import error_of
from executor.workers.distributed.lanes import Key, Outgoing
from executor.workers.distributed.mesh import Mesh
from executor.workers.distributed.ports import ReductionPlan, RemoteChannel, RemoteReduction
from executor.workers.ports import Slot
from executor.workers.threads import ThreadWorkers

LANE = 0
Arrive = Callable[[Any, int], None]
"""Takes a value and when it arrived."""


class Inbox:
    """Values on their way from lanes to ports, whichever is there first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ports: dict[Key, Arrive] = {}
        self._early: dict[Key, tuple[Any, int]] = {}

    def expect(self, key: Key, arrive: Arrive) -> None:
        """Give the value of a key, which comes once, to a port."""
        with self._lock:
            early = self._early.pop(key, None)
            if early is None:
                self._ports[key] = arrive
        if early is not None:
            arrive(*early)

    def deliver(self, key: Key, value: Any) -> None:
        """Take a value that has arrived; runs in its lane's thread."""
        arrived = now()
        with self._lock:
            port = self._ports.pop(key, None)
            if port is None:
                self._early[key] = value, arrived
        if port is not None:
            port(value, arrived)


class StepWorkers:
    """This process's device, for steps without end."""

    def __init__(self, recorder: Recorder, *, mesh: Mesh, threads: ThreadWorkers) -> None:
        self.devices = threads.devices
        """The one device of this process."""
        self._recorder, self._mesh, self._threads = recorder, mesh, threads
        self.inbox = Inbox()
        self.stretch = 0
        """Goes up when names start at 0 again: then no key comes a second time."""
        mesh.serve(self.inbox.deliver, "task {} of its run".format)
        for member in mesh.members:
            if member.number != mesh.number:
                mesh.incoming(member.number, LANE)
        mesh.watch.listen(lambda cause: threads.fail(error_of(cause)))

    def key(self, task: int, number: int = 0) -> Key:
        """Return the key of a value: of a transfer, or of a member's share."""
        return task, self.stretch * len(self._mesh.members) + number

    def home(self, device: int) -> Home:  # noqa: ARG002 - one signature for all
        """Return the memory of this process."""
        return HOST

    def channel(self, task: int, name: str) -> Port:
        """Refuse: only `between` knows where a transfer goes."""
        raise NotImplementedError(f"{name}: a trainer's transfers have ends")

    def between(self, task: int, name: str, ends: tuple[int, int]) -> Port:
        """Return the port of a transfer from a device to a device."""
        sender, receiver = ends
        lane = self.lane(receiver) if sender == self._mesh.number else None
        name = f"{name}, from {self._mesh.members[sender]}"
        port = RemoteChannel(partial(self.wait, sender), name, key=self.key(task), recorder=self._recorder, lane=lane)
        if lane is None:
            self.inbox.expect(self.key(task), port.arrive)
        return port

    def exchange(self, plan: ExchangePlan) -> Exchange:
        """Return the ports of a reduction in which this process takes part."""
        own = self._mesh.number
        lanes = [self.lane(taker) for taker in plan.takers if taker != own and own in plan.members]
        slots = [self._slot(plan, number) for number in range(len(plan.members))]
        return RemoteReduction(self.key(plan.task), ReductionPlan(plan.total, slots, lanes), self._recorder)

    def _slot(self, plan: ExchangePlan, number: int) -> Slot:
        member = plan.members[number]
        slot = Slot(partial(self.wait, member), f"{plan.name}, from {self._mesh.members[member]}")
        if member != self._mesh.number and self._mesh.number in plan.takers:
            self.inbox.expect(self.key(plan.task, number), lambda value, _: slot.put(value))
        return slot

    def lane(self, process: int) -> Outgoing:
        """Return the sending end of the lane to a process."""
        return self._mesh.outgoing(process, LANE)

    def wait(self, process: int, arrived: threading.Lock, name: str) -> None:
        """Wait until a value of a process has arrived; raise RunError after the limit, Halted if the run has failed."""
        if arrived.acquire(blocking=False):
            return
        position = self._mesh.watch.position
        position.waits_for = process if process != self._mesh.number else -1
        self._threads.wait_for(arrived, name)  # if it raises, the position says for whom it waited
        position.waits_for = -1

    def run(self, work: Sequence[Callable[[], None]]) -> None:
        """Run this process's device; raise its own error, or what another process's failure makes of it."""
        self._threads.run(work)

    def check(self, device: int, position: int) -> None:
        """Say how far the device is; raise Halted if any process has failed."""
        self._mesh.watch.position.task = position
        self._threads.check(device, position)

    def close(self) -> None:
        """End the computing thread; the lanes belong to the mesh."""
        self._threads.close()
