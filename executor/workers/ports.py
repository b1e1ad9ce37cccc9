"""Hand-overs in shared memory: a slot for one value, and a lock that is free while a value lies in it.

A lock that one thread acquires and another releases costs 0.2 µs where nobody waits; taking the value leaves it acquired,
ready for the next pass over the graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from executor.run.clock import Recorder
from executor.workers.base import ExchangePlan

WaitFor = Callable[[threading.Lock, str], None]
"""Acquires a lock within a time limit; the text names what is waited for."""


class Slot:
    """A place for one value between two threads."""

    def __init__(self, wait_for: WaitFor, name: str) -> None:
        self._wait_for, self._name = wait_for, name
        self._value: Any = None
        #   lock held: the slot is empty        put: lay down, release      take: acquire, pick up      wait: acquire, release
        self._arrived = threading.Lock()
        self._arrived.acquire()

    def put(self, value: Any) -> None:
        """Hand the value over."""
        self._value = value
        self._arrived.release()

    def take(self) -> Any:
        """Return the value once it is there, and forget it."""
        self._wait_for(self._arrived, self._name)
        value, self._value = self._value, None  # a slot that kept it would keep an activation alive until the next pass
        return value

    def wait(self) -> None:
        """Return once the value is there, and leave it."""
        self._wait_for(self._arrived, self._name)
        self._arrived.release()

    def free(self) -> None:
        """Do nothing: the value lies in memory of its own."""


class Channel(Slot):
    """A slot whose hand-over is a task of the graph.

    Its span starts when the producer hands over. It ends when a consumer that waits for it wakes up; a value for which nobody
    waits yet is there at once, since the memory is shared.
    """

    def __init__(self, wait_for: WaitFor, name: str, *, task: int, recorder: Recorder) -> None:
        super().__init__(wait_for, name)
        self._task, self._recorder = task, recorder

    def put(self, value: Any) -> None:
        """Hand the value over; the span starts."""
        # before the release: behind it the consumer may have ended the span already
        self._recorder.begin(self._task)
        self._value = value
        self._arrived.release()

    def take(self) -> Any:
        """Return the value once it is there, and forget it; the span ends."""
        if self._arrived.acquire(blocking=False):
            self._recorder.finish_at_once(self._task)
        else:
            self._wait_for(self._arrived, self._name)
            self._recorder.finish(self._task)
        value, self._value = self._value, None
        return value


class Reduction:
    """An exchange: the last of the members to come computes the total and gives it to every taker."""

    def __init__(self, wait_for: WaitFor, plan: ExchangePlan, recorder: Recorder) -> None:
        self._plan, self._recorder = plan, recorder
        self._lock = threading.Lock()
        self._values: dict[int, Any] = {}
        self._takers = [Slot(wait_for, plan.name) for _ in plan.takers]

    def member(self, number: int) -> MemberSink:
        """Return the sink of one member."""
        return MemberSink(self, number)

    def taker(self, number: int) -> Slot:
        """Return the source of one taker."""
        return self._takers[number]

    def add(self, number: int, value: Any) -> None:
        """Take one member's value."""
        # counted under the lock, or two members that come at once might both be last, or neither
        with self._lock:
            self._values[number] = value
            complete = len(self._values) == len(self._plan.members)
        if complete:
            self._hand_out()

    def _hand_out(self) -> None:
        # in the thread of whoever came last, outside of the lock
        self._recorder.begin(self._plan.task)
        # in the members' order, whoever came last: the sum is the same to the last bit in every run
        total = self._plan.total([value for _, value in sorted(self._values.items())])
        self._values.clear()  # before anybody takes the total, behind which members of the next pass may come
        self._recorder.finish(self._plan.task)
        for taker in self._takers:
            taker.put(total)


class MemberSink:
    """One member's end of a reduction."""

    def __init__(self, reduction: Reduction | LocalExchange, number: int) -> None:
        self._reduction, self._number = reduction, number

    def put(self, value: Any) -> None:
        """Hand this member's value over."""
        self._reduction.add(self._number, value)


class LocalExchange:
    """An exchange on one device: all members stand before all takers in its order, so nobody waits, and no task stands for it."""

    def __init__(self, plan: ExchangePlan) -> None:
        self._plan = plan
        self._values: dict[int, Any] = {}
        self._takers = [LocalSlot() for _ in plan.takers]

    def member(self, number: int) -> MemberSink:
        """Return the sink of one member."""
        return MemberSink(self, number)

    def taker(self, number: int) -> LocalSlot:
        """Return the source of one taker."""
        return self._takers[number]

    def add(self, number: int, value: Any) -> None:
        """Take one member's value; the last one's makes the total."""
        self._values[number] = value
        if len(self._values) == len(self._plan.members):
            total = self._plan.total([value for _, value in sorted(self._values.items())])
            self._values.clear()
            for taker in self._takers:
                taker.put(total)


class LocalSlot:
    """A hand-over on one device: the producer stands before the consumer in its order, so nobody waits."""

    def __init__(self) -> None:
        self._value: Any = None

    def put(self, value: Any) -> None:
        """Lay the value down."""
        self._value = value

    def take(self) -> Any:
        """Return the value and forget it."""
        value, self._value = self._value, None
        return value

    def wait(self) -> None:
        """Return at once."""

    def free(self) -> None:
        """Do nothing: the value lies in memory of its own."""
