"""What `Trainer.step` gives: known at once under a flush, else when the devices are so far; whoever asks earlier waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of a step that all devices have done."""

    loss: float
    seconds: float
    finished: tuple[int, ...]


class Step:
    """One mini-batch of a training.

    Without a flush `step` returns while the mini-batch is still on its way, so that the devices need not wait for the caller.
    Asking for anything but its number waits until all devices have done the step; asking for the one before costs nothing.
    """

    __slots__ = ("_await", "_outcome", "mini_batch")

    def __init__(self, mini_batch: int, await_outcome: Callable[[int], None]) -> None:
        self.mini_batch = mini_batch
        """Its number, counted over the whole training from 0."""
        self._await = await_outcome
        self._outcome: Outcome | None = None

    @property
    def loss(self) -> float:
        """Loss of this mini-batch, at the weights that its forwards read."""
        return self._known().loss

    @property
    def seconds(self) -> float:
        """Seconds from the end of the step before, or from the call if that was later, to the end of this one."""
        return self._known().seconds

    @property
    def finished(self) -> tuple[int, ...]:
        """Mini-batches whose update was made on every stage, by this step and not by the one before."""
        return self._known().finished

    def settle(self, outcome: Outcome) -> None:
        """Take down what is known now."""
        self._outcome = outcome

    def _known(self) -> Outcome:
        if self._outcome is None:
            self._await(self.mini_batch)
        assert self._outcome is not None
        return self._outcome

    def __repr__(self) -> str:
        known = "on its way" if self._outcome is None else f"loss {self._outcome.loss:.6g}, {self._outcome.seconds:.4g} s"
        return f"<Step {self.mini_batch}: {known}>"
