"""What the updates of one device wait for where all stages decide together, if nobody has anything to decide.

    last gradient on device 0 ──▶ here ─┐
    last gradient on device 1 ──▶ here ─┴─▶ everybody is here ──▶ the updates of both

A trainer that clips, or scales losses, exchanges what it decides by in the same place (`executor.trainer.updating.verdict`).
"""

from __future__ import annotations

from collections.abc import Sequence

from executor.plan.decisions import PlannedDecision
from executor.workers.base import Exchange, ExchangePlan, Sink, ValueSource


def decision_plan(decision: PlannedDecision) -> ExchangePlan:
    """Return an exchange in which devices say only that they are there."""
    return ExchangePlan(decision.task, decision.name, decision.devices, decision.devices, total=everybody, plain=True)


def everybody(present: Sequence[bool]) -> bool:
    """Tell whether all are there."""
    return all(present)


class Meeting:
    """One device's part: the first of its updates waits for the other devices, those behind it pass."""

    def __init__(self, exchange: Exchange, number: int, *, num_updates: int) -> None:
        """Join an exchange; `number` is the device's among those that decide."""
        self._sink: Sink = exchange.member(number)
        self._source: ValueSource = exchange.taker(number)
        self._num_updates = num_updates
        self._passed = 0

    def wait(self) -> None:
        """Return when the gradients of all devices are complete."""
        if not self._passed:
            self._sink.put(True)
            self._source.take()
        # of the next pass over the graph the first update waits again
        self._passed = (self._passed + 1) % self._num_updates

    def take(self) -> None:
        """Wait; there is no value."""
        self.wait()

    def free(self) -> None:
        """Do nothing: nothing was lent."""
