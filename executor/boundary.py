"""What goes from stage to stage: a tensor, or a value made of tensors, some of which need no gradient."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from executor.structure import TENSOR, Form, Name, put_together, take_apart
from schedir.errors import RefusedError

Value = Any
"""Input and output of a stage: a tensor, or a value that `executor.structure` takes apart."""


@dataclass(frozen=True, slots=True)
class Message:
    """A stage's input, cut off from the graph of the stage that made it."""

    tensors: tuple[Tensor, ...]
    needs_grad: tuple[bool, ...]
    """By tensor: the stage that made it waits for its gradient."""
    form: Form = TENSOR
    """How the stage's input is made of them; by default it is the one tensor."""

    def value(self, tensors: Sequence[Tensor]) -> Value:
        """Return the stage's input, made of tensors in place of its own."""
        return tensors[0] if self.form is TENSOR else put_together(self.form, tensors)

    def with_gradients(self) -> tuple[Tensor, ...]:
        """Return the tensors as leaves of a new graph."""
        pairs = zip(self.tensors, self.needs_grad, strict=True)
        return tuple(tensor.detach().requires_grad_() if needed else tensor for tensor, needed in pairs)

    def __str__(self) -> str:
        return describe(self.tensors)


def describe(tensors: Iterable[Tensor]) -> str:
    """Return kinds and shapes for an error message: `float32 [4, 16]`."""
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in tensors)


def input_message(value: Value) -> Message:
    """Return the message of a model's input, which needs no gradient."""
    tensors, form = take_apart(value, lambda: "the model's input")
    return Message(tuple(tensor.detach() for tensor in tensors), (False,) * len(tensors), form)


def output_message(tensors: Sequence[Tensor], form: Form) -> Message:
    """Return the message of a stage's output, taken apart."""
    return Message(tuple(tensor.detach() for tensor in tensors), tuple(tensor.requires_grad for tensor in tensors), form)


def message_of(value: Value, name: Name) -> Message:
    """Return the message of a stage's output; raise ArgumentError for what no stage can hand on."""
    return output_message(*take_apart(value, name))


def special_kind(tensor: Tensor) -> str:
    """Return what a tensor is that is not a plain piece of memory with strides; empty for one that is."""
    if tensor.is_nested or tensor.is_meta or tensor.is_quantized:
        return "nested" if tensor.is_nested else "meta" if tensor.is_meta else "quantized"
    return "" if tensor.layout is torch.strided else str(tensor.layout).removeprefix("torch.")


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
    pairs = zip(copies, originals, strict=True)
    return counted or not all(torch.equal(*pair) for pair in pairs if not special_kind(pair[0]))  # torch compares no others


@dataclass(frozen=True, slots=True)
class Arguments:
    """How a stage's forward takes a value that is made of several."""

    spread: bool
    """It has several arguments: a tuple or list is spread over them. Otherwise it is the one argument, as nn.Sequential has it."""
    names: frozenset[str] | None
    """Its arguments by name; None: any. A dict whose keys are all among them is spread too, if there are several."""
    required: frozenset[str]
    """Those without a default."""

    @classmethod
    def of(cls, module: nn.Module) -> Arguments:
        """Read the signature of a module's forward."""
        parameters = signature(module.forward).parameters.values()
        kinds = [each.kind for each in parameters]
        positional = sum(kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD} for kind in kinds)
        single = [each for each in parameters if each.kind not in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}]
        names = frozenset(each.name for each in single if each.kind is not Parameter.POSITIONAL_ONLY)
        return cls(
            spread=positional > 1 or Parameter.VAR_POSITIONAL in kinds,
            names=None if Parameter.VAR_KEYWORD in kinds else names if len(names) > 1 else frozenset(),
            required=frozenset(each.name for each in single if each.default is Parameter.empty),
        )

    def call(self, module: nn.Module, value: Value) -> Any:
        """Run a module on a value."""
        if isinstance(value, Tensor):
            return module(value)
        if self.spread and isinstance(value, tuple | list):
            return module(*value)
        if isinstance(value, Mapping) and self._takes_keys_of(value):
            return module(**value)
        return module(value)

    def _takes_keys_of(self, value: Mapping[Any, Any]) -> bool:
        known = all(isinstance(key, str) for key in value) if self.names is None else self.names.issuperset(value)
        return known and self.required.issubset(value)


def takes_several(module: nn.Module) -> bool:
    """Return True if a stage's forward has several arguments, so that a tuple is spread over them."""
    return Arguments.of(module).spread


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
