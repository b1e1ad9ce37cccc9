"""A model is trained by one training at a time: two would overwrite each other's weights, without a word of either.

    first = Trainer(stages, …)     claims the stages' modules and trainable parameters
    second = Trainer(stages, …)    refused, naming one of them, until the first is closed, has failed or is let go of

Held is what training changes: trainable parameters, by identity since several models may have them, and modules that have buffers
or whose forward may remember something. A frozen layer, or a ReLU, may stand in two models.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Self

from torch import nn

from executor.model.admission import STATELESS
from schedir.errors import RefusedError
from schedir.expect import kind_of

_HELD: dict[int, Claim] = {}
"""By identity: what trainings of this process hold now. A claim keeps what it holds alive, so no identity is used again."""
_HOLDING = RLock()
"""Held while claims change. By one thread again, too: garbage that is collected meanwhile may give a claim back."""


class Claim:
    """What one training holds, until it is released."""

    def __init__(self, stages: Sequence[nn.Module], prefixes: Sequence[str], *, by: str) -> None:
        """Hold stages; `by` says in a refusal of others who does, and what to do: `an open Trainer: close it`.

        Raises RefusedError if another training holds a part of them.
        """
        self.by = by
        self._held = {id(thing): (stage, name, thing) for stage, name, thing in _changed(stages, prefixes)}
        with _HOLDING:
            if self._first_taken() is not None:
                gc.collect()  # it may be a trainer's that nobody has any more, but that refers to itself
            if (key := self._first_taken()) is not None:
                stage, name, _ = self._held[key]
                raise RefusedError(
                    f"stage {stage} holds {name}, which belongs to {_HELD[key].by}, or give each its own copy (copy.deepcopy)"
                )
            _HELD.update(dict.fromkeys(self._held, self))

    def _first_taken(self) -> int | None:
        return next((key for key in self._held if key in _HELD), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others have it; a second time nothing happens."""
        with _HOLDING:
            for key in self._held:
                if _HELD.get(key) is self:
                    del _HELD[key]
            self._held = {}


def _changed(stages: Sequence[nn.Module], prefixes: Sequence[str]) -> Iterator[tuple[int, str, object]]:
    """Yield (stage, name in the whole model, parameter or module) of everything that training changes."""
    for number, (prefix, stage) in enumerate(zip(prefixes, stages, strict=True)):
        for name, parameter in stage.named_parameters():
            if parameter.requires_grad:
                yield number, prefix + name, parameter
        for name, module in stage.named_modules():
            # by the module, too: while devices compute, versions stand where its parameters were
            trained = any(parameter.requires_grad for parameter in module.parameters(recurse=False))
            if trained or module._buffers or type(module) not in STATELESS:
                place = (prefix + name).rstrip(".") or kind_of(module)
                yield number, place, module
