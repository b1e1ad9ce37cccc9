"""Cut a model that runs blocks one behind the other, and prove on an example that the stages give what the model gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from executor.model.cutting.block_stages import block_stages
from executor.model.cutting.block_survey import REMEDY, Blocks, list_of_blocks, survey
from executor.model.cutting.example_run import Call, as_call, evaluating, run
from executor.model.hugging_face import example_of, is_hugging_face, settings_of
from executor.structure import tensors_in
from schedir.errors import ArgumentError, RefusedError

_TOLERANCE = 1e-4
"""Operations are the same, so results should be; a block, a mask or a position left out makes more of a difference."""


def runs_blocks(model: object, example: Any = None) -> TypeGuard[nn.Module]:
    """Tell whether a model can be tried: one of transformers, or any with a list of modules for which there is an example."""
    if not isinstance(model, nn.Module) or isinstance(model, nn.Sequential | nn.ModuleList):
        return False
    return (is_hugging_face(model) or example is not None) and list_of_blocks(model) is not None


def num_blocks(model: nn.Module) -> int:
    """Return how many blocks a model runs that `runs_blocks`."""
    path = list_of_blocks(model)
    return 0 if path is None else sum(1 for _ in model.get_submodule(path).children())


class BlockCutter:
    """Cuts one model. Raises RefusedError for one that does not run its blocks one behind the other, and nothing between them."""

    def __init__(self, model: nn.Module, example: Any = None) -> None:
        """Run the model once; `example` is an input of it, which a model of transformers need not be given."""
        settings, main_name = {}, None
        if is_hugging_face(model):
            known: Any = model
            settings, main_name = settings_of(known), known.main_input_name
            example = example_of(known) if example is None else example
        self.example = example
        self._model, self._call = model, as_call(example)
        self._blocks = survey(model, self._call, settings=settings, main_name=main_name)

    def at(self, names: Sequence[str]) -> list[nn.Module]:
        """Return the stages that begin with the first block, and with these."""
        known = self._blocks.names()
        wrong = next((name for name in names if name not in known[1:]), None)
        if wrong is not None:
            raise ArgumentError(
                f"at {wrong!r} is no place to cut {type(self._model).__name__}: name some of its blocks "
                f"{known[min(1, len(known) - 1)]} .. {known[-1]}"
            )
        starts = [known.index(name) for name in names]
        if starts != sorted(set(starts)):
            raise ArgumentError(f"at {list(names)} is out of order: name blocks as they are called, each once")
        return self._proved((0, *starts))

    def into(self, counts: Callable[[list[nn.Module]], Sequence[int]]) -> list[nn.Module]:
        """Return stages of as many blocks as `counts` says, given all blocks as a stage each."""
        finest = self._stages(tuple(range(self._blocks.count)))
        return self._proved(tuple(accumulate(counts(finest)[:-1], initial=0)))

    def _proved(self, starts: tuple[int, ...]) -> list[nn.Module]:
        with evaluating(self._model):
            expected = tensors_in(run(self._model, self._call, self._blocks.settings))
        for sends_main in (False, True):
            stages = self._stages(starts, sends_main=sends_main)
            if _same(_chained(stages, self._call), expected):
                return stages
        raise RefusedError(
            f"{type(self._model).__name__} hands more from block to block than the hidden state, so its stages would give other "
            f"results than the model: {REMEDY}"
        )

    def _stages(self, starts: tuple[int, ...], *, sends_main: bool = True) -> list[nn.Module]:
        blocks: Blocks = replace(self._blocks, sends_main=sends_main)
        return block_stages(self._model, blocks, starts)


def _chained(stages: list[nn.Module], call: Call) -> tuple[Tensor, ...] | None:
    """Return what stages give one behind the other, None if one fails."""
    with evaluating(*stages):
        try:
            value = stages[0](*call[0], **call[1])
            for stage in stages[1:]:
                value = stage(*value)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError):
            return None
    return tensors_in(value)


def _same(found: tuple[Tensor, ...] | None, expected: tuple[Tensor, ...]) -> bool:
    if found is None or [tensor.shape for tensor in found] != [tensor.shape for tensor in expected]:
        return False
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(ours, whole, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True) for ours, whole in pairs)
