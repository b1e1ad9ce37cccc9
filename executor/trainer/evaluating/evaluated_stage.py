"""A stage while it is evaluated: newest weights, no graph, nothing kept of a micro-batch; where it fails nobody waits in vain."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from executor.boundary import Message, message_of
from executor.model.skips import joined_message, parted
from executor.stage.module import StageModule
from executor.stage.stage import StageRuntime
from executor.trainer.evaluating.judging import EvaluatedPart, Tally
from executor.trainer.live_feed import LiveFeed


class EvaluatedStage:
    """One stage in eval mode, on the first of its devices."""

    def __init__(self, runtime: StageRuntime, module: nn.Module, feed: LiveFeed, *, device: int, is_last: bool) -> None:
        self.device, self.number = device, runtime.number
        self._weights, self._feed = runtime.weights, feed
        self._sends = () if runtime.skips is None else runtime.skips.sends
        self._home = runtime.home
        self._module = StageModule(runtime.number, module, feed, is_last=is_last, device=runtime.home.device)

    def forward(self, judge: Tally, piece: EvaluatedPart, *messages: Message) -> Message | tuple[Message, ...]:
        """Compute a micro-batch; return what goes to the next stage, and behind it what goes over skip connections if any do.

        Where that fails messages without content go there.
        """
        made = judge.tried(piece, (self.number, self.device), lambda: self._sent(piece, messages))
        if made is not None:
            return made
        nothing = Message((torch.zeros(1, device=self._home.device),), (False,))
        return (nothing,) * (1 + len(self._sends)) if self._sends else nothing

    def _sent(self, piece: EvaluatedPart, messages: Sequence[Message]) -> Message | tuple[Message, ...]:
        output = self._compute(piece, messages)

        def name() -> str:
            return f"the output of stage {self.number} for micro-batch {piece.number} of an evaluation"

        if not self._sends:
            return message_of(output, name)
        rest, values = parted(output, self._sends, name)
        return tuple(message_of(value, name) for value in (rest, *values))

    def judge(self, judge: Tally, piece: EvaluatedPart, *messages: Message) -> None:
        """Compute a micro-batch on the last stage, with loss and metrics."""
        judge.tried(piece, (self.number, self.device), lambda: self._judged(judge, piece, messages))

    def _judged(self, judge: Tally, piece: EvaluatedPart, messages: Sequence[Message]) -> None:
        output = self._compute(piece, messages)
        with torch.no_grad(), self._module.surroundings(piece.number):
            # as in training: the loss of padding alone may be 0 / 0, and 0 times that is no 0
            loss = float(self._feed.loss(output, piece.part.target)) if piece.part.loss_scale else 0.0
            judge.take(piece, output, loss)

    def _compute(self, piece: EvaluatedPart, messages: Sequence[Message]) -> object:
        message = joined_message(messages) if len(messages) > 1 else messages[0] if messages else piece.part.inputs
        self._weights.bind(self._weights.newest)
        with torch.no_grad(), self._module.surroundings(piece.number):
            return self._module(message.tensors, message)
