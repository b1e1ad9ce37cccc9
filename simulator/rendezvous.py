"""Blocking sends: a device keeps its result in hand until the receiver takes it, and does nothing else meanwhile.

    device 0   [ 0F0 ]>[ 0F1 ]>>>>>>>…      holds 0F1 until device 1 comes to 1F1
    device 1          [ 1F0 ][ 1B0 ]>>>…    holds 1B0 until device 0 comes to 0B0: a deadlock, which buffered sends do not know

Behind a task, a device sends its results one after the other; before a task, it receives what the task needs one after the
other. A transfer starts when both sides have come to it, and keeps the sender until it has left, the receiver until it is in.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import simpy

from schedir.errors import DeadlockError
from schedir.ir.action import Kind
from schedir.ir.checks.rendezvous import check_rendezvous
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from simulator.engine import SimpyEngine
from simulator.network import Conditions
from simulator.readers import NOBODY


class RendezvousEngine(SimpyEngine):
    """One run under blocking sends: a transfer waits for one thing more, that its receiver has come to take it."""

    def __init__(self, graph: TaskGraph, times: TaskTimes, conditions: Conditions | None = None) -> None:
        super().__init__(graph, times, conditions)
        transfers = graph.kind == Kind.TRANSFER
        self._is_transfer: list[bool] = transfers.tolist()
        for transfer in np.flatnonzero(transfers).tolist():
            # the receiver, beside the maker
            self._missing[transfer] += 1
        self._taken: set[int] = set()
        self._one_to_one = [False] * len(graph.lanes)  # a transfer's maker is not all that it waits for

    def _run_device(self, device: int) -> Generator[simpy.Event, None, None]:
        alarm = self._alarms[device]
        for task in range(self._first[device], self._stop[device]):
            for transfer in self._to_take(task):
                alarm.wind()
                self._deliver(transfer, self.clock.now)
                yield alarm
            alarm.wind()
            if self._missing[task]:
                self._parked[device] = task
            else:
                self._begin(task, device)
            yield alarm
            for reader in self._readers_of(task):
                alarm.wind()
                self._deliver(reader, self._free[device] + self._latency[task])
                if self._is_transfer[reader]:
                    yield alarm
                    self._free[device] = self.clock.now

    def _readers_of(self, task: int) -> list[int]:
        reader = self._reader[task]
        return self._readers[task] if reader < NOBODY else [reader] if reader >= 0 else []

    def _to_take(self, task: int) -> list[int]:
        """Return the transfers that a device has to receive when it comes to a task."""
        found = [source for source in self.graph.sources(task).tolist() if self._is_transfer[source] and source not in self._taken]
        # a transfer with two readers (R, then B, under on-gradient) is taken by the first
        self._taken.update(found)
        # in the order of their numbers, as the sender sends them: two devices that differ in it would block each other
        return sorted(found)

    def _pass(self, task: int, lane: int) -> None:
        super()._pass(task, lane)
        if self._network is None or not self._network.serves[lane]:
            self._let_go(task, lane, released=self._free[lane])

    def _served(self, task: int, lane: int, start: float) -> None:
        super()._served(task, lane, start)
        self._let_go(task, lane, released=self.clock.now)

    def _let_go(self, task: int, lane: int, *, released: float) -> None:
        """Let both sides of a transfer go on: the sender when it has left, the receiver when it is in."""
        if self._is_transfer[task]:
            sides = self.graph.lanes[lane]
            self.clock.ring(self._alarms[sides.device], released)
            self.clock.ring(self._alarms[sides.peer], released + self._latency[task])

    def _deadlock(self) -> DeadlockError:
        check_rendezvous(self.graph)
        return super()._deadlock()
