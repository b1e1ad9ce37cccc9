"""One verdict on the gradients of all stages, which the updates of every device wait for.

    update on device 0 ── gradients looked at ──▶ gate ─┐
    update on device 1 ── gradients looked at ──▶ gate ─┴─▶ one verdict ──▶ both update, or both leave it out

A device has one gate, and behind it a cell for each of its updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from executor.stage.gradients import Sums
from executor.stage.stage import StageRuntime
from executor.trainer.step_binder import StepTask
from executor.workers.base import Sink, ValueSource

NOWHERE = -1
"""Stands for the stage whose gradients are not finite, where all are."""


class StepVerdict(NamedTuple):
    """What is known of some gradients."""

    squares: float
    """Sum of the squares of all; not finite if one of them is not."""
    culprit: int
    """First stage whose gradients are not finite, or NOWHERE."""

    @classmethod
    def of_all(cls, verdicts: Sequence[StepVerdict]) -> StepVerdict:
        """Return what is known of all gradients, given what is of each part."""
        culprits = [verdict.culprit for verdict in verdicts if verdict.culprit != NOWHERE]
        return cls(sum(verdict.squares for verdict in verdicts), min(culprits, default=NOWHERE))


class Examined(NamedTuple):
    """The gradients of one update, and what decides on it."""

    gradients: list[Tensor | None]
    """Without the scale of the loss."""
    verdict: StepVerdict


Examine = Callable[[StageRuntime, int, Sums], Examined]
"""(stage, update, its gradients) -> what they are without the scale, and what is known of them."""


class Gate:
    """What the updates of one device wait for: the verdict on the gradients of all devices."""

    def __init__(self, sink: Sink, source: ValueSource) -> None:
        self.cells: list[Cell] = []
        self._verdict: StepVerdict | None = None
        self._sink, self._source = sink, source

    def wait(self) -> None:
        """Hand in what is known of this device's gradients, and return when that of all devices is there."""
        # the first update of the device waits; the graph puts all of them behind the last gradient, so all cells can be filled
        if self._verdict is None:
            self._sink.put(StepVerdict.of_all([cell.collect() for cell in self.cells]))
            self._verdict = self._source.take()

    def free(self) -> None:
        """Do nothing: a verdict is in nobody's memory."""

    def take(self) -> StepVerdict:
        """Return the verdict."""
        self.wait()
        assert self._verdict is not None
        return self._verdict


class Cell:
    """The gradients of one update behind the gate."""

    def __init__(
        self, gate: Gate, stage: StageRuntime, *, task: StepTask, examine: Examine, counts: bool, over_model: bool
    ) -> None:
        """Take the stage's update.

        `counts` on one of its replicas, which all have the same gradients; `over_model`: the squares that decide are those of all.
        """
        self._gate, self._stage, self._examine, self._counts, self._over_model = gate, stage, examine, counts, over_model
        self._reduced, self._update = task.sources, task.action.update
        self._own: Examined | None = None
        gate.cells.append(self)

    def collect(self) -> StepVerdict:
        """Take the gradients, those of all replicas if there are several; return what counts."""
        given = self._stage.updates.collect(self._update, *(source.take() for source in self._reduced))
        self._own = self._examine(self._stage, self._update, given)
        verdict = self._own.verdict
        return verdict if self._counts else StepVerdict(0.0, verdict.culprit)

    def wait(self) -> None:
        """Return at once: the gate was waited for."""

    def free(self) -> None:
        """Let go of what was reduced."""
        for source in self._reduced:
            source.free()

    def take(self) -> Examined:
        """Return the gradients to update with, and what decides."""
        verdict, own = self._gate.take(), self._own
        assert own is not None, "the gate has collected it"
        self._own = None  # the update that takes the gradients is the last to need them
        squares = verdict.squares if self._over_model else own.verdict.squares
        return Examined(own.gradients, StepVerdict(squares, verdict.culprit))
