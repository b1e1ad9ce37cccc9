"""Hand-overs between processes, behind the same protocol as those in shared memory.

transfer     producer's process ── lane ──▶ slot in the consumer's process
reduction    every replica's process ── its share ──▶ a slot per member in every replica's process; each adds all shares up in the
             order of the replicas, so that all have the same sum to the last bit, and the same as threads have
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from executor.boundary import Message
from executor.run.clock import UNRECORDED, Recorder
from executor.workers.base import Sink
from executor.workers.distributed.messages.codec import what_cannot_travel
from executor.workers.distributed.messages.lanes import Key, Outgoing
from executor.workers.ports import Slot, WaitFor
from schedir.errors import ArgumentError


class RemoteSlot(Slot):
    """A slot that another process fills. That may be a pass ahead of this one: a value that finds the slot full queues up."""

    def __init__(self, wait_for: WaitFor, name: str) -> None:
        super().__init__(wait_for, name)
        self._filling = threading.Lock()
        self._is_full = False
        self._queue: deque[Any] = deque()

    def put(self, value: Any) -> None:
        """Hand the value over; in a lane's thread."""
        with self._filling:
            if self._is_full:
                self._queue.append(value)
                return
            self._is_full = True
        super().put(value)

    def take(self) -> Any:
        """Return the oldest value once it is there, and forget it."""
        value = super().take()
        with self._filling:
            queued = bool(self._queue)
            following = self._queue.popleft() if queued else None
            self._is_full = queued
        if queued:  # the slot stays full in between, so what comes now queues up behind
            super().put(following)
        return value


class RemoteChannel(RemoteSlot):
    """A transfer. It starts when its turn on the lane comes, and ends when its value has arrived in the other process."""

    def __init__(self, wait_for: WaitFor, name: str, *, key: Key, recorder: Recorder, lane: Outgoing | None) -> None:
        """`lane` is None in the consumer's process."""
        super().__init__(wait_for, name)
        self._key, self._recorder, self._lane = key, recorder, lane

    def put(self, value: Any) -> None:
        """Send the value; in the producer's process. Raises ArgumentError naming what cannot go to another process."""
        assert self._lane is not None
        reason = what_cannot_travel(value) if isinstance(value, Message) else ""
        if reason:
            raise ArgumentError(f"{self._name} holds {reason}")
        self._lane.send(self._key, value, begin=partial(self._recorder.begin, self._key[0]))

    def arrive(self, value: Any, at: int) -> None:
        """Take in the value that has arrived `at`, in the consumer's process."""
        super().put((value, at))

    def take(self) -> Any:
        """Return the value once it is there, and forget it."""
        value, arrived_at = super().take()
        self._recorder.record(self._key[0], UNRECORDED, arrived_at)
        return value


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """A reduction, seen from one process."""

    total: Callable[[Sequence[Any]], Any]
    """Makes the total of the members' values, in their order."""
    slots: Sequence[Slot]
    """By member: where its share arrives."""
    lanes: Sequence[Outgoing]
    """To the other replicas' processes."""
    num_takers: int
    """In this process: several where it has several stages of a tie."""


class RemoteReduction:
    """A reduction. It starts when the last share is complete, and ends when the first replica has the total."""

    def __init__(self, key: Key, plan: ReductionPlan, recorder: Recorder) -> None:
        """`key` is that of the share of member 0."""
        self._key, self._plan, self._recorder = key, plan, recorder
        self._total: Any = None
        self._to_come = 0
        """Takers that have not taken the total yet, once it is there."""

    def member(self, number: int) -> Sink:
        """Return the sink of one member, which is in this process."""
        return _Member(partial(self._share, number))

    def taker(self, number: int) -> RemoteReduction:  # noqa: ARG002 - all takers of a process get the same
        """Return the source of this process's takers."""
        return self

    def arrive(self, number: int, value: Any) -> None:
        """Take in the share of a member in another process."""
        self._plan.slots[number].put(value)

    def take(self) -> Any:
        """Return the total once all shares are there."""
        # no lock: all takers of a process are tasks of its one computing thread, one after the other
        if not self._to_come:
            self._total = self._plan.total([slot.take() for slot in self._plan.slots])
            self._recorder.finish(self._key[0])
            self._to_come = self._plan.num_takers
        total = self._total
        self._to_come -= 1
        if not self._to_come:
            self._total = None
        return total

    def wait(self) -> None:
        """Return once all shares are there."""
        for slot in self._plan.slots if not self._to_come else ():
            slot.wait()

    def free(self) -> None:
        """Do nothing: the memory was not lent."""

    def _share(self, number: int, value: Any) -> None:
        self._recorder.begin(self._key[0])
        for lane in self._plan.lanes:
            lane.send((self._key[0], self._key[1] + number), value)
        self._plan.slots[number].put(value)


@dataclass(frozen=True, slots=True)
class _Member:
    """One member's end of a reduction."""

    take_share: Callable[[Any], None]

    def put(self, value: Any) -> None:
        self.take_share(value)
