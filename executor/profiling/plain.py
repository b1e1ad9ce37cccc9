"""A recipe trained without a pipeline: the whole model in one thread, a plain loop of PyTorch on whole mini-batches.

It is what a pipeline has to beat on the same machine, and its losses are those that a schedule with a flush has to give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import torch

from executor.model.data import paired
from executor.model.stages import LayerRow, Stages
from executor.profiling.parts import copy_stages
from executor.recipe.recipe import MiniBatch, Recipe
from executor.recipe.short_passes import precision_of
from schedir.errors import RefusedError


class PlainTraining:
    """A copy of the recipe's model in one piece, with its optimizer; the recipe's own stays as it is."""

    def __init__(self, recipe: Recipe) -> None:
        """Copy the model. Raises RefusedError where its stages send past each other, which no chain of calls can say."""
        stages = copy_stages(recipe.cut())
        if isinstance(stages, Stages) and stages.skips:
            raise RefusedError(f"recipe {recipe.name} has skip connections between its stages: a plain loop has no way for them")
        self._recipe, self._model = recipe, LayerRow(*stages)
        self._optimizer = recipe.optimizer([each for each in self._model.parameters() if each.requires_grad])

    def train(self, mini_batches: Sequence[MiniBatch]) -> tuple[list[float], list[float]]:
        """Train on whole mini-batches, one after the other; return the losses, and when each update ended, in seconds."""
        losses, ends = [], []
        with _one_thread(), precision_of(self._recipe), torch.inference_mode(mode=False):
            for inputs, target in map(paired, mini_batches):
                self._optimizer.zero_grad()
                loss = self._recipe.loss(self._model(inputs), target)
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
                self._optimizer.step()
                losses.append(float(loss.detach()))
                ends.append(perf_counter())
        return losses, ends


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute in this thread alone, as each device of a pipeline of threads does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
