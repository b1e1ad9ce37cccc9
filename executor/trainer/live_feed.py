"""The data of an endless row of mini-batches: each is held from its step until its update is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from executor.boundary import Message, Value
from executor.model.data import MicroBatch
from executor.model.pipeline import Loss
from executor.run.ring import RingLog
from executor.stage.feed import Autocast
from executor.stage.loss_guard import LossGuard, Seen


class LiveFeed:
    """What stages ask for, by micro-batches counted since the pipeline was last empty. Changed by the caller's thread only."""

    def __init__(self, loss: Loss, *, seed: int, autocast: Autocast, log: RingLog, num_micro_batches: int) -> None:
        self.loss, self.seed, self.autocast, self.log = loss, seed, autocast, log
        self.num_micro_batches = num_micro_batches
        self.trainable = False
        """Some stage has parameters to train, so a loss without a gradient is an error."""
        self.first_mini_batch = 0
        """Number of micro-batch 0's mini-batch, counted over the whole training."""
        self.gradient_scale = 1.0
        """What all gradients are multiplied with, from the loss on."""
        self._held: dict[int, MicroBatch] = {}
        self.guard = LossGuard()
        """Looks at losses that are not finite."""
        self.tell: Callable[[int, MicroBatch, Tensor], None] = _nobody
        """Told every loss that is computed here."""
        self.hear: Callable[[int, MicroBatch], Tensor | None] = _unheard
        """Gives a loss that is computed elsewhere."""
        self._losses: dict[int, Tensor | None] = {}
        """By micro-batch; None if it counts nothing."""

    def add(self, mini_batch: int, parts: Sequence[MicroBatch]) -> None:
        """Take the data of a mini-batch."""
        for number, part in enumerate(parts, mini_batch * self.num_micro_batches):
            self._held[number], self._losses[number] = part, None

    def inputs(self, micro_batch: int) -> Message:
        """Return the model's input."""
        return self._held[micro_batch].inputs

    def target(self, micro_batch: int) -> Value:
        """Return the target."""
        return self._held[micro_batch].target

    def loss_scale(self, micro_batch: int) -> float:
        """Return what the loss is multiplied with; 0: it counts nothing."""
        return self._held[micro_batch].loss_scale * self.gradient_scale

    def note_loss(self, micro_batch: int, loss: Tensor) -> None:
        """Note a loss, at the weights that its forward read."""
        part, (mini_batch, place) = self._held[micro_batch], divmod(micro_batch, self.num_micro_batches)
        # first: it may end the training, and then no other process is to go on with this loss
        self.guard.look(self.first_mini_batch + mini_batch, place, loss=loss, part=part, micro_batch=micro_batch)
        self._losses[micro_batch] = loss
        self.tell(micro_batch, part, loss)

    def loss_of(self, mini_batch: int) -> float:
        """Return the loss of a mini-batch whose forwards have all run."""
        computed = {j: loss for j in self._micro_batches(mini_batch) if (loss := self._losses[j]) is not None}
        own = dict(zip(computed, _floats(list(computed.values())), strict=True))
        seen = [Seen(j % self.num_micro_batches, loss, self._held[j]) for j, loss in own.items()]
        self.guard.tell(self.first_mini_batch + mini_batch, seen)
        found = ((own[j] if j in own else self._heard(j), self._held[j].loss_scale) for j in self._micro_batches(mini_batch))
        return sum(loss * scale for loss, scale in found if loss is not None)

    def _heard(self, micro_batch: int) -> float | None:
        """Return a loss that is not computed here; None for a micro-batch that counts nothing."""
        part = self._held[micro_batch]
        loss = self.hear(micro_batch, part) if part.loss_scale else None
        return None if loss is None else float(loss)

    def release(self, mini_batch: int) -> None:
        """Forget a mini-batch whose update is made."""
        for j in self._micro_batches(mini_batch):
            del self._held[j], self._losses[j]

    def clear(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._losses.clear()

    def _micro_batches(self, mini_batch: int) -> range:
        return range(mini_batch * self.num_micro_batches, (mini_batch + 1) * self.num_micro_batches)


def _floats(losses: Sequence[Tensor]) -> list[float]:
    """Return losses as numbers; those of one GPU come in one piece, since each piece waits for the GPU."""
    found = [0.0] * len(losses)
    for device in {loss.device for loss in losses}:
        numbers = [number for number, loss in enumerate(losses) if loss.device == device]
        values = torch.stack([losses[number].reshape(()) for number in numbers]).tolist()
        for number, value in zip(numbers, values, strict=True):
            found[number] = value
    return found


def _nobody(micro_batch: int, part: MicroBatch, loss: Tensor) -> None:
    """Tell nobody a loss."""


def _unheard(micro_batch: int, part: MicroBatch) -> Tensor | None:  # noqa: ARG001 - as a team has it
    """Hear of no loss."""
    return None
