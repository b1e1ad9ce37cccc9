"""Steps that were asked for, until the devices are so far that what they give is known."""

from __future__ import annotations

from collections.abc import Callable

from executor.trainer.engine import Engine
from executor.trainer.step_result import Outcome, Step


class OnWay:
    """The steps of one training that are on their way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._steps: dict[int, Step] = {}
        """By mini-batch."""
        self._finished: list[int] = []
        """Mini-batches whose update is made, but that no step has told of yet."""

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, await_outcome: Callable[[int], None]) -> Step:
        """Return the step of the next mini-batch."""
        number = self._engine.mini_batch
        step = self._steps[number] = Step(number, await_outcome)
        return step

    def settle(self, *, but: int = 0) -> None:
        """Wait until no more than `but` steps are on their way, and fill in those that are done."""
        self._engine.await_steps(but=but)
        for settled, finished in self._engine.settle():
            self._finished += finished
            if settled is not None:
                outcome = Outcome(settled.loss, settled.seconds, self.take_finished())
                self._steps.pop(settled.mini_batch).settle(outcome)

    def take_finished(self) -> tuple[int, ...]:
        """Return the mini-batches whose update is made and was not told of, and forget them."""
        finished, self._finished = tuple(self._finished), []
        return finished
