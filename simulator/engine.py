"""The SimPy engine: one process per device, which runs its tasks in order, sends what they make and sleeps until they end.

The life of a message, on a link that nothing else uses:

    device 0   [ 0F3 ]────────            its process wakes at the end of 0F3 and sends: the link is free from `free`,
    link 0->1        [===]......          so the transfer's start, release and arrival are known at once
    device 1                    [ 1F3 ]   if device 1 is parked at 1F3, its alarm is set to the end of 1F3

So a task costs one event, its own end, and a message none: an idle device sleeps through start and arrival to the end of its
next task. All times are absolute and are sums and maxima of the same pairs of numbers as in `schedir.ir.order.in_order`, so the
bits are the same. What shares something with others (`simulator.network`) is not known beforehand and takes events of its own.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import simpy

from schedir.errors import DeadlockError, RefusedError
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import Spans, TaskTimes
from simulator.clock import Alarm, Clock
from simulator.network import Conditions, Network
from simulator.readers import NOBODY, readers_of

UNKNOWN = float("nan")


class SimpyEngine:
    """One run of a task graph. Lists have one entry per task or per lane. Raises RefusedError for edges with a lag."""

    def __init__(self, graph: TaskGraph, times: TaskTimes, conditions: Conditions | None = None) -> None:
        if graph.edge_lag is not None:
            raise RefusedError("the SimPy engine has no early releases (edges with a lag): use engine in-order")
        waiting, num_lanes = readers_of(graph), len(graph.lanes)
        self.graph, self.times, self.clock = graph, times, Clock()
        self._duration: list[float] = times.duration.tolist()
        self._latency: list[float] = [0.0] * graph.num_tasks if times.latency is None else times.latency.tolist()
        self._gaps = times.gaps(graph.num_compute_tasks).tolist()
        self._reader, self._readers, self._lane = waiting.reader, waiting.readers, waiting.lane
        self._first, self._stop, self._one_to_one = waiting.first, waiting.stop, waiting.one_to_one
        # lists of Python's own numbers throughout: one entry of an array costs a loop many times as much
        self._start = [UNKNOWN] * graph.num_tasks
        self._late_release: dict[int, float] = {}  # of tasks that the network served
        self._ready = [0.0] * graph.num_tasks  # latest end, so far, of what a task waits for
        self._missing = waiting.num_sources  # how much of it is not known yet
        self._free = [0.0] * num_lanes  # release of the lane's last task
        self._next = list(waiting.first)  # of link and reduction lanes: the task whose turn it is
        self._parked = [NOBODY] * num_lanes  # of compute lanes: the task whose turn it is, but which waits
        self._network = Network(self.clock, conditions, num_lanes) if conditions else None
        if self._network is not None:
            self._network.served = self._served
            self._one_to_one = [
                plain and not shared for plain, shared in zip(waiting.one_to_one, self._network.serves, strict=True)
            ]
        self._num_devices, self._num_compute = graph.program.num_devices, graph.num_compute_tasks
        self._alarms = [Alarm(self.clock) for _ in range(self._num_devices)]

    def run(self) -> Spans:
        """Run to the end; raise DeadlockError, naming who waits for what, if some tasks never start."""
        # links need no process: whoever ends a task or a transfer lets the next one pass
        for device in range(self._num_devices):
            self.clock.process(self._run_device(device))
        self.clock.run()
        start = np.array(self._start)
        if np.isnan(start).any():
            raise self._deadlock()
        release = start + self.times.duration
        if self._late_release:
            release[list(self._late_release)] = list(self._late_release.values())
        return Spans(start, release, release if self.times.latency is None else release + self.times.latency)

    def _run_device(self, device: int) -> Generator[simpy.Event, None, None]:
        alarm, missing, free = self._alarms[device], self._missing, self._free
        latency, readers = self._latency, self._reader
        for task in range(self._first[device], self._stop[device]):
            if missing[task]:
                self._parked[device] = task
            else:
                self._begin(task, device)
            # rung already or not: the clock comes to a ring only after this process has yielded
            yield alarm.wind()
            if readers[task] != NOBODY:
                self._tell(task, free[device] + latency[task])

    def _begin(self, task: int, device: int) -> None:
        """Start a task whose turn it is and which waits for nothing more."""
        free, ready = self._free[device], self._ready[task]
        at = ready if ready > free else free  # noqa: FURB136 - max() costs three times as much here
        at += self._gaps[task]
        if self._network is not None and self._network.serves[device]:
            self._network.request(task, device, at, work=self._duration[task])
            return
        self._start[task] = at
        self._free[device] = at = at + self._duration[task]
        self.clock.ring(self._alarms[device], at)

    def _tell(self, task: int, end: float) -> None:
        """Tell all that wait for a task when it ends."""
        reader = self._reader[task]
        # the usual case, a message on a link of its own, takes none of the counting below
        if reader >= self._num_compute and self._one_to_one[lane := self._lane[reader]]:
            self._send(reader, lane, end)
        elif reader >= 0:
            self._deliver(reader, end)
        elif reader != NOBODY:
            for each in self._readers[task]:
                self._deliver(each, end)

    def _deliver(self, task: int, end: float) -> None:
        """Note when something that a task waits for ends; the last brings it under way, if its turn has come."""
        if end > self._ready[task]:  # noqa: PLR1730 - max() costs three times as much here
            self._ready[task] = end
        self._missing[task] = missing = self._missing[task] - 1
        if missing:
            return
        # a compute task starts only when its device has come to it and is parked there
        lane = self._lane[task]
        if lane >= self._num_devices:
            if self._one_to_one[lane]:
                self._send(task, lane, end)
            else:
                self._pass(task, lane)
        elif self._parked[lane] == task:
            self._parked[lane] = NOBODY
            self._begin(task, lane)

    def _send(self, transfer: int, lane: int, at: float) -> None:
        """Let a message cross a link that carries one after the other as they come: the usual case of `_deliver` and `_pass`."""
        free = self._free[lane]
        self._start[transfer] = at = at if at > free else free  # noqa: FURB136 - as above
        self._free[lane] = at = at + self._duration[transfer]
        self._deliver(self._reader[transfer], at + self._latency[transfer])

    def _pass(self, task: int, lane: int) -> None:
        """Let a message cross its link (or a reduction its lane), and those behind it that waited only for their turn."""
        if self._network is not None and self._network.serves[lane]:
            self._network.request(task, lane, self._ready[task], work=self._duration[task])
            return
        # one message may free the turn of those behind it that were complete already
        stop = self._stop[lane]
        while task == self._next[lane] and task < stop and not self._missing[task]:
            free, ready = self._free[lane], self._ready[task]
            self._start[task] = at = ready if ready > free else free  # noqa: FURB136 - as above
            self._free[lane] = at = at + self._duration[task]
            self._next[lane] = task + 1
            self._tell(task, at + self._latency[task])
            task += 1

    def _served(self, task: int, lane: int, start: float) -> None:
        """Hear from the network that a task ends now."""
        self._start[task] = start
        self._late_release[task] = self._free[lane] = now = self.clock.now
        if lane < self._num_devices:
            self.clock.ring(self._alarms[lane], now)
        else:
            self._tell(task, now + self._latency[task])

    def _deadlock(self) -> DeadlockError:
        """Say which actions wait for which; a verified graph ends unless its sends block."""
        waits = [self._waiting(device) for device, task in enumerate(self._parked) if task != NOBODY]
        text = "; ".join(waits[:8]) + ("; …" if len(waits) > 8 else "")
        return DeadlockError(f"deadlock: {text}: none of them can ever start, so change the order of one of these devices")

    def _waiting(self, device: int) -> str:
        task = self._parked[device]
        makers = [self._maker(int(source)) for source in self.graph.sources(task)]
        missing = [self.graph.label(maker) for maker in makers if np.isnan(self._start[maker])]
        return f"device {device}: {self.graph.label(task)} waits for {', '.join(missing) or 'its message'}"

    def _maker(self, task: int) -> int:
        """Return the compute task behind a transfer or reduction."""
        while task >= self.graph.num_compute_tasks:
            task = int(self.graph.sources(task)[0])
        return task
