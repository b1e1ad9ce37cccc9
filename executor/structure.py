"""Values made of tensors: taken apart into their tensors and a form, and put together again.

    {"hidden": x, "mask": (m, None), "scale": 2.0}   ◀──▶   tensors (x, m)  +  form {"hidden": ▢, "mask": (▢, None), "scale": 2.0}

A value is a tensor, a plain value (None, a number, a string, …), or a tuple, named tuple, list, mapping or dataclass of such; the
outputs of Hugging Face's models are mappings. Anything else is refused by its kind and place: what it holds could need a gradient
that nobody would send back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from schedir.errors import ArgumentError
from schedir.expect import with_article

Form = Any
"""`TENSOR`, a plain value, or a `_Node` of forms."""
Name = Callable[[], str]
"""Says in an error whose value it is."""

_PLAIN = (int, float, complex, str, bytes, Enum, torch.dtype, torch.device, torch.Size)


class Hole(Enum):
    """Stands in a form for a tensor."""

    TENSOR = "tensor"


TENSOR = Hole.TENSOR
"""The form of a value that is one tensor; a name of its own, since looking a member up takes as long as handing a tensor on."""


@dataclass(frozen=True, slots=True)
class _Node:
    """The form of a container."""

    kind: type
    keys: tuple[Any, ...] | None
    """Of a mapping, or the fields of a dataclass; None for a sequence."""
    parts: tuple[Form, ...]


class _Opened(NamedTuple):
    kind: type
    keys: tuple[Any, ...] | None
    parts: Sequence[Any]


class _Foreign(Exception):  # noqa: N818 - never leaves this module
    """Something that is no value stands at `place`."""

    def __init__(self, found: object, place: str) -> None:
        super().__init__(found, place)
        self.found, self.place = found, place


def take_apart(value: object, name: Name) -> tuple[tuple[Tensor, ...], Form]:
    """Return the tensors of a value, in their order, and its form; raise ArgumentError for what is none, or holds no tensor."""
    if isinstance(value, Tensor):
        return (value,), TENSOR
    tensors: list[Tensor] = []
    try:
        form = _form(value, tensors, "")
    except _Foreign as foreign:
        where = f" at {foreign.place}" if foreign.place else ""
        raise ArgumentError(
            f"{name()} is or holds {_kind(foreign.found)}{where}: give tensors, None, numbers, strings, and tuples, lists, dicts "
            "and dataclasses of them"
        ) from None
    if not tensors:
        raise ArgumentError(f"{name()} is {_kind(value)} without a tensor: give at least one tensor")
    return tuple(tensors), form


def put_together(form: Form, tensors: Iterable[Tensor]) -> Any:
    """Return the value of a form with these tensors, its containers made anew."""
    return _filled(form, iter(tensors))


def in_tuple(forms: Sequence[Form]) -> Form:
    """Return the form of a tuple of the values of these forms; those that are tuples themselves are spread in it."""
    spread = [form.parts if isinstance(form, _Node) and form.kind is tuple else (form,) for form in forms]
    return _Node(tuple, None, tuple(part for parts in spread for part in parts))


def tensors_in(value: object) -> tuple[Tensor, ...]:
    """Return the tensors of a value, passing over what is none."""
    if isinstance(value, Tensor):
        return (value,)
    opened = _open(value)
    return () if opened is None else tuple(tensor for part in opened.parts for tensor in tensors_in(part))


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a value like another one with all its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    tensors, form = take_apart(value, lambda: "the value")
    return put_together(form, map(change, tensors))


def _kind(found: object) -> str:
    return "None" if found is None else with_article(type(found).__qualname__)


def _form(value: object, tensors: list[Tensor], place: str) -> Form:
    if isinstance(value, Tensor):
        tensors.append(value)
        return TENSOR
    if value is None or isinstance(value, _PLAIN):
        return value
    opened = _open(value)
    if opened is None:
        raise _Foreign(value, place)
    kind, keys, parts = opened
    names = range(len(parts)) if keys is None else keys
    return _Node(kind, keys, tuple(_form(part, tensors, f"{place}[{name!r}]") for name, part in zip(names, parts, strict=True)))


def _open(value: object) -> _Opened | None:
    """Return the kind, keys and parts of a container, None for anything else."""
    if isinstance(value, tuple):
        return _Opened(type(value), None, value)
    if type(value) is list:
        return _Opened(list, None, value)
    if isinstance(value, Mapping):
        # other mappings come as dicts: nobody knows whether their items are all that they are made of
        kept = type(value) is OrderedDict or (is_dataclass(value) and isinstance(value, dict))
        return _Opened(type(value) if kept else dict, tuple(value), tuple(value.values()))
    if is_dataclass(value) and not isinstance(value, type):
        keys = tuple(field.name for field in fields(value))
        return _Opened(type(value), keys, tuple(getattr(value, key) for key in keys))
    return None


def _filled(form: Form, tensors: Iterator[Tensor]) -> Any:
    if form is TENSOR:
        return next(tensors)
    if not isinstance(form, _Node):
        return form
    parts = [_filled(part, tensors) for part in form.parts]
    kind: Any = form.kind
    if form.keys is None:
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    named = dict(zip(form.keys, parts, strict=True))
    has_fields = is_dataclass(kind)
    if not issubclass(kind, dict):
        return _dataclass(kind, named)
    return kind(**named) if has_fields else kind(named)


def _dataclass(kind: Any, named: Mapping[str, Any]) -> Any:
    """Make a dataclass as it was, without what its own `__init__` does."""
    made: Any = object.__new__(kind)
    for key, part in named.items():
        object.__setattr__(made, key, part)
    return made
