"""The workers protocol in a process that runs one device's lanes: one computing thread, and two lanes to every other process.

    lane 0    transfers, one after the other as the link of the graph has them
    lane 1    shares of reductions, and losses

A value may arrive before its port is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations

from executor.home import HOST, Home
from executor.run.clock import Recorder
from executor.workers.base import Exchange, ExchangePlan, Fence, Port
from executor.workers.distributed.mesh import Mesh
from executor.workers.distributed.messages.inbox import Inbox
from executor.workers.distributed.messages.lanes import Key, Outgoing
from executor.workers.distributed.messages.ports import ReductionPlan, RemoteChannel, RemoteReduction, RemoteSlot
from executor.workers.distributed.own_gpu import OwnGpu
from executor.workers.distributed.watching.causes import error_of
from executor.workers.threads import ThreadWorkers
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind

TRANSFERS, SHARES = 0, 1


MOST_MEMBERS = 2**20
"""More shares than any reduction has: a tie has one of each of its stages on every device that hosts it."""


def gpu_lanes(graph: TaskGraph) -> list[tuple[int, int, int]]:
    """Return on which lanes a graph hands tensors over, as (sender, receiver, lane): along links, and from replica to replica."""
    links = [(lane.device, lane.peer, TRANSFERS) for lane in graph.lanes if lane.kind is LaneKind.LINK]
    hosts = graph.stage_devices()
    groups = [
        {device for stage in lane.tie or (lane.peer,) for device in hosts[stage]}
        for lane in graph.lanes
        if lane.kind is LaneKind.REDUCE and not lane.over_model  # what all stages decide together are numbers of the host
    ]
    shares = {(sender, receiver, SHARES) for group in groups for sender, receiver in permutations(sorted(group), 2)}
    return [*links, *sorted(shares)]


class DistributedWorkers:
    """This process's device."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        mesh: Mesh,
        threads: ThreadWorkers,
        describe: Callable[[int], str],
        endless: bool,
        gpu: OwnGpu | None = None,
    ) -> None:
        """`describe` gives a task's text, for the other processes; `endless`: every task comes once, with ports of its own.

        `gpu` is the one that the device computes on, None for the CPU.
        """
        self.devices = threads.devices
        """The one device of this process."""
        self._recorder, self._mesh, self._threads, self._endless = recorder, mesh, threads, endless
        self._gpu = gpu
        self.inbox = Inbox()
        self.stretch = 0
        """Goes up when names start at 0 again: then no key of ports that are made anew comes a second time."""
        mesh.serve(self._deliver, describe)
        for member in mesh.members:
            if member.number != mesh.number:
                for lane in (TRANSFERS, SHARES):  # both ends of all lanes, used or not: each end waits for the other's at the end
                    mesh.incoming(member.number, lane)
                    mesh.outgoing(member.number, lane)
        mesh.watch.listen(lambda cause: threads.fail(error_of(cause)))

    def key(self, task: int, number: int = 0) -> Key:
        """Return the key of a value: of a transfer, or of a member's share."""
        return task, self.stretch * MOST_MEMBERS + number

    def home(self, device: int) -> Home:  # noqa: ARG002 - one signature for all
        """Return the memory of this process, or of its GPU."""
        return HOST if self._gpu is None else self._gpu.home

    def _deliver(self, key: Key, value: object) -> None:
        """Take a value that has arrived; runs in its lane's thread."""
        if self._gpu is not None:
            self._gpu.claim(value)
        self.inbox.deliver(key, value)

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> Port:
        """Return the port of a transfer that starts or ends here."""
        sender, receiver = ends
        lane = self.lane(receiver, TRANSFERS) if sender == self._mesh.number else None
        name = f"{name}, from {self._mesh.members[sender]}"
        port = RemoteChannel(partial(self.wait, sender), name, key=self.key(task), recorder=self._recorder, lane=lane)
        if lane is None:
            self.inbox.expect(self.key(task), port.arrive, stays=not self._endless)
        return port

    def exchange(self, plan: ExchangePlan) -> Exchange:
        """Return the ports of a reduction in which this process takes part."""
        own = self._mesh.number
        # once to each process, however many stages of a tie it hosts
        lanes = [self.lane(taker, SHARES) for taker in dict.fromkeys(plan.takers) if taker != own and own in plan.members]
        slots = [self._slot(plan, number) for number in range(len(plan.members))]
        made = ReductionPlan(plan.total, slots, lanes, num_takers=plan.takers.count(own))
        return RemoteReduction(self.key(plan.task), made, self._recorder)

    def _slot(self, plan: ExchangePlan, number: int) -> RemoteSlot:
        """Return where the share of a member arrives."""
        member = plan.members[number]
        slot = RemoteSlot(partial(self.wait, member), f"{plan.name}, from {self._mesh.members[member]}")
        if member != self._mesh.number and self._mesh.number in plan.takers:
            self.inbox.expect(self.key(plan.task, number), lambda value, _: slot.put(value), stays=not self._endless)
        return slot

    def lane(self, process: int, lane: int) -> Outgoing:
        """Return the sending end of a lane to a process."""
        return self._mesh.outgoing(process, lane)

    def wait(self, process: int, arrived: threading.Lock, name: str) -> None:
        """Wait until a value of a process has arrived; raise RunError after the limit, Halted if the run has failed."""
        if arrived.acquire(blocking=False):
            return
        position = self._mesh.watch.position
        # its own share of a reduction is nobody else's to send
        position.waits_for = process if process != self._mesh.number else -1
        self._threads.wait_for(arrived, name)  # if it raises, the position says for whom it waited
        position.waits_for = -1

    def run(self, work: Sequence[Callable[[], None]]) -> None:
        """Run this process's device; raise its own error, or what another process's failure makes of it."""
        self.follow()
        self._threads.run(work)

    def follow(self) -> None:
        """Wait for what the caller has told the GPU to do; the threads of a process share its memory."""
        if self._gpu is not None:
            self._gpu.await_caller()

    def fence(self, device: int) -> Fence:
        """Return what is passed: the computing thread has done its work itself."""
        return self._threads.fence(device)

    def check(self, device: int, position: int) -> None:
        """Say how far the device is; raise Halted if any process has failed."""
        self._mesh.watch.position.task = position
        self._threads.check(device, position)

    def close(self) -> None:
        """End the computing thread; the lanes belong to the mesh."""
        self._threads.close()
