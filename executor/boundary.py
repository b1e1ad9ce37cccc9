"""What goes from stage to stage: one tensor, or a tuple of tensors, some of which need no gradient."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from schedir.errors import ArgumentError, RefusedError

Value = Tensor | tuple[Tensor, ...]
"""Input and output of a stage."""


@dataclass(frozen=True, slots=True)
class Message:
    """A stage's input, cut off from the graph of the stage that made it."""

    tensors: tuple[Tensor, ...]
    needs_grad: tuple[bool, ...]
    """By tensor: the stage that made it waits for its gradient."""
    single: bool
    """It was one tensor, not a tuple of one."""

    def with_gradients(self) -> tuple[Tensor, ...]:
        """Return the tensors as leaves of a new graph."""
        pairs = zip(self.tensors, self.needs_grad, strict=True)
        return tuple(tensor.detach().requires_grad_() if needed else tensor for tensor, needed in pairs)

    def __str__(self) -> str:
        return describe(self.tensors)


def describe(tensors: Iterable[Tensor]) -> str:
    """Return kinds and shapes for an error message: `float32 [4, 16]`."""
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in tensors)


def as_tensors(value: object, owner: str) -> tuple[Tensor, ...]:
    """Return one tensor or a tuple of tensors as a tuple; raise ArgumentError naming the owner for anything else."""
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, tuple) and value and all(isinstance(part, Tensor) for part in value):
        return value
    parts = value if isinstance(value, tuple) else (value,)
    wrong = next((part for part in parts if not isinstance(part, Tensor)), value)
    raise ArgumentError(f"{owner} is or holds {wrong!r:.60} ({type(wrong).__name__}): give one tensor or a tuple of tensors")


def input_message(value: Value) -> Message:
    """Return the message of a model's input, which needs no gradient."""
    tensors = as_tensors(value, "the model's input")
    return Message(tuple(tensor.detach() for tensor in tensors), (False,) * len(tensors), isinstance(value, Tensor))


def output_message(tensors: tuple[Tensor, ...], *, single: bool) -> Message:
    """Return the message of a stage's output."""
    needs_grad = tuple(tensor.requires_grad for tensor in tensors)
    return Message(tuple(tensor.detach() for tensor in tensors), needs_grad, single)


@contextmanager
def noting(where: str) -> Iterator[None]:
    """Add to an error of the user's code where it was called."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in {where}")
        raise


def were_changed(copies: Sequence[Tensor], versions: Sequence[int], originals: Sequence[Tensor]) -> bool:
    """Return True if copies were written to: by an operation in place, which counts up, or through `data`, which does not."""
    counted = list(versions) != [copy._version for copy in copies]
    return counted or not all(torch.equal(*pair) for pair in zip(copies, originals, strict=True))


def takes_several(module: nn.Module) -> bool:
    """Return True if a stage's forward has several arguments, so that a tuple is spread over them.

    Otherwise a tuple is its one argument, as nn.Sequential passes it on.
    """
    kinds = [parameter.kind for parameter in signature(module.forward).parameters.values()]
    positional = sum(kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    return positional > 1 or Parameter.VAR_POSITIONAL in kinds


_ABOUT_SHAPES = re.compile(r"\b(shapes?|sizes?|dimensions?|dims?|channels|dtypes?|same device|index out of range)\b", re.IGNORECASE)
"""How torch says that tensors do not fit; it has no type of its own for these errors."""


def misfit(error: Exception, subject: str, module: nn.Module | None = None) -> RefusedError | None:
    """Return what to raise instead of an error by which torch says that tensors do not fit, None for any other error.

    `subject` says who does not take what.
    """
    text = " ".join(str(error).split())
    if type(error) not in (RuntimeError, IndexError) or not _ABOUT_SHAPES.search(text):
        return None
    where = f", in {_innermost(error, module)}" if module is not None else ""
    return RefusedError(f"{subject}: {text[:200]}{where}: make both fit")


def _innermost(error: Exception, module: nn.Module) -> str:
    """Return the innermost layer in which an error was raised."""
    found: Any = module
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            found = owner
        trace = trace.tb_next
    text = " ".join(repr(found).split())
    return text if len(text) <= 80 else type(found).__name__
