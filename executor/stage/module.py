"""Run a stage's module as a worker has to: under the caller's autocast, with random numbers of its own, on input it may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from executor.boundary import Arguments, Message, misfit, were_changed
from executor.home import HOST
from executor.randomness import StageGenerator, may_draw, seed_of
from executor.stage.feed import Supply
from executor.structure import TENSOR
from schedir.errors import RefusedError

_NOTHING = nullcontext()


class StageModule:
    """One copy of a stage's module. The first forward shows whether it works in place."""

    def __init__(self, number: int, module: nn.Module, feed: Supply, *, is_last: bool, device: torch.device = HOST.device) -> None:
        self._number, self._module, self._feed = number, module, feed
        self._arguments = Arguments.of(module)
        self._generator = StageGenerator(device)
        self._may_draw = may_draw(module) or (is_last and may_draw(feed.loss))
        """Some forward of it, or the loss behind it, may draw: a first one that did not says nothing of the next."""
        self._works_in_place: bool | None = None
        """It changes its input, so it gets a copy; None as long as nobody knows."""

    def surroundings(self, micro_batch: int) -> AbstractContextManager[None]:
        """Return the context in which the module, and the loss behind it, run on a micro-batch."""
        return self._entered(micro_batch) if self._may_draw or self._feed.autocast.enabled else _NOTHING

    @contextmanager
    def _entered(self, micro_batch: int) -> Iterator[None]:
        feed = self._feed
        with ExitStack() as contexts:
            if feed.autocast.enabled:
                contexts.enter_context(feed.autocast())
            if self._may_draw:
                # seeded anew at every entry, so a recomputation draws what its forward drew, whatever lies between the two
                mini_batch, place = divmod(micro_batch, feed.num_micro_batches)
                self._generator.seed(seed_of(feed.seed, feed.first_mini_batch + mini_batch, place, self._number))
                contexts.enter_context(self._generator)
            yield

    def __call__(self, tensors: tuple[Tensor, ...], message: Message) -> object:
        """Run the module on tensors that have the form of `message`; raise RefusedError naming the stage if they do not fit."""
        if self._works_in_place is False:
            return self._run(tensors, message)
        copies = tuple(tensor.clone() for tensor in tensors)
        versions = [copy._version for copy in copies]
        if self._works_in_place:
            return self._run(copies, message)
        known = self._parameter_names()
        output = self._run(copies, message)
        for name in self._parameter_names() - known:  # not of the optimizer's, so it would never be trained
            raise RefusedError(
                f"stage {self._number} makes its parameter {name} in its forward, when its optimizer is there already: make it in "
                "__init__, or run the model once before you give it"
            )
        self._works_in_place = were_changed(copies, versions, tensors)
        return output

    def _parameter_names(self) -> set[str]:
        return {name for name, _ in self._module.named_parameters()}

    def _run(self, tensors: tuple[Tensor, ...], message: Message) -> object:
        try:
            # nearly every stage: what follows looks the arguments up at every call
            if message.form is TENSOR:
                return self._module(tensors[0])
            return self._arguments.call(self._module, message.value(tensors))
        except (RuntimeError, IndexError) as error:
            giver = f"what stage {self._number - 1} gives" if self._number else "the model's input"
            refused = misfit(error, f"stage {self._number} does not take {giver}, {message}", self._module)
            if refused is None:
                raise
            raise refused from error
