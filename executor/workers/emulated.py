"""Workers without hardware: threads between which a transfer takes the time that its costs say.

A link is occupied for a transfer's duration, one after the other in the order in which they are handed over; the value has
arrived `latency` later. Nobody sleeps for a link: its times follow from the clock at each hand-over, and a consumer that comes
too early sleeps until the arrival.
"""

from __future__ import annotations

from time import perf_counter_ns, sleep
from typing import Any

from executor.run.clock import Recorder
from executor.workers.base import Port
from executor.workers.ports import Slot, WaitFor
from executor.workers.threads import ThreadWorkers
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes

NANOSECONDS = 1_000_000_000


class EmulatedWorkers(ThreadWorkers):
    """One thread per device, and links with durations and latencies."""

    def __init__(self, graph: TaskGraph, times: TaskTimes, recorder: Recorder, *, timeout_s: float) -> None:
        super().__init__(graph.program.num_devices, recorder, timeout_s=timeout_s)
        self._times = times
        self._lane = graph.lane.tolist()
        self._links: dict[int, EmulatedLink] = {}

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> Port:  # noqa: ARG002 - one signature for all
        """Return the port of a transfer."""
        link = self._links.setdefault(self._lane[task], EmulatedLink())
        latency = 0.0 if self._times.latency is None else float(self._times.latency[task])
        times = (round(float(self._times.duration[task]) * NANOSECONDS), round(latency * NANOSECONDS))
        return DelayedChannel(self.wait_for, name, (task, *times), link=link, recorder=self.recorder)


class EmulatedLink:
    """One direction of a link; only its sender's thread uses it."""

    def __init__(self) -> None:
        self._free = 0

    def occupy(self, duration: int) -> tuple[int, int]:
        """Return when a transfer handed over now starts and ends to occupy the link, in nanoseconds."""
        #   handed over   a  b              c           b queues behind a; c finds the link free
        #   the link      ├─ a ─┼─ b ─┤     ├─ c ─┤
        start = max(perf_counter_ns(), self._free)
        self._free = start + duration
        return start, self._free


class DelayedChannel(Slot):
    """A slot whose value can be taken when it has arrived."""

    def __init__(
        self, wait_for: WaitFor, name: str, transfer: tuple[int, int, int], *, link: EmulatedLink, recorder: Recorder
    ) -> None:
        """`transfer` is (task, duration, latency), the times in nanoseconds."""
        super().__init__(wait_for, name)
        self._task, self._duration, self._latency = transfer
        self._link, self._recorder = link, recorder
        self._arrival = 0

    def put(self, value: Any) -> None:
        """Hand the value over: it goes on its way as soon as the link is free."""
        start, end = self._link.occupy(self._duration)
        self._arrival = end + self._latency
        self._recorder.record(self._task, start, self._arrival)
        super().put(value)  # last: it lets the consumer go, who reads the arrival

    def take(self) -> Any:
        """Return the value once it has arrived."""
        value = super().take()
        self._sleep_until_arrival()
        return value

    def wait(self) -> None:
        """Return once the value has arrived."""
        super().wait()
        self._sleep_until_arrival()

    def _sleep_until_arrival(self) -> None:
        early = self._arrival - perf_counter_ns()
        if early > 0:
            sleep(early / NANOSECONDS)
