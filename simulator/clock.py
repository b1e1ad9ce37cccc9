"""SimPy's clock with two additions: things may happen at a given time, and one alarm serves all tasks of a lane.

SimPy schedules by delay, and now + (then - now) is not always `then`: where a timeline has to equal the longest-path pass to the
last bit, the time itself must be scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy
from simpy.events import NORMAL


class Alarm(simpy.Event):
    """Something that a process waits for again and again; a fresh event for every task would cost as much as the task.

    A process calls `wind()` and yields the alarm; whoever knows the time calls `Clock.ring(alarm, at)`, once per winding,
    before or after it.
    """

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None

    def wind(self) -> Alarm:
        """Make the alarm ready to be waited for once more."""
        # SimPy sets this to None once it has processed an event, and takes that as the mark of one that is over
        self.callbacks = []
        return self


class Clock(simpy.Environment):
    """A SimPy environment that also takes absolute times."""

    def ring(self, event: simpy.Event, at: float) -> None:
        """Let a triggered event be processed at `at`, not before now."""
        heappush(self._queue, (at, NORMAL, next(self._eid), event))

    def call(self, function: Callable[[], Any], at: float) -> None:
        """Call a function at `at`, not before now."""
        # an Alarm, since it counts as triggered already
        event = Alarm(self)
        event.callbacks.append(lambda _: function())
        self.ring(event, at)
