"""What decides how the layers of a stage compute, beside their tensors: training or evaluation, and plain values that they read.

    read    training; what the class names in `__constants__` (p of Dropout, momentum of BatchNorm); an own `self.temperature`
    kept    a counter, a last loss: whatever the stage's own code writes outside of `__init__` is its state, and no setting

Values can be watched, but not writes: Python tells nobody of `layer.p = 0`. So code tells which values a forward may change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dis import get_instructions
from operator import itemgetter
from types import CodeType
from typing import Any

from torch import nn

from executor.model.changes import on_the_way

Values = tuple[Any, ...]
"""Of all layers, in their order."""

_PLAIN = (bool, int, float, str, type(None))
_WRITES = frozenset({"STORE_ATTR", "DELETE_ATTR"})


class LayerSettings:
    """Those of one copy of a stage; which values they are is settled when this is made."""

    def __init__(self, module: nn.Module, stage: int = 0, *, fixed: bool = False) -> None:
        """Take a copy of a stage, and its number for what is raised.

        `fixed`: only what no forward changes: modes and what classes declare, without what the stage's own code sets
        (`self.norm.eval()`, `self.drop.p = …`). Of other values a forward may change any, through a helper say.
        """
        self._stage = stage
        written = _written_by({type(layer) for layer in module.modules()})
        found = ((name, layer, tuple(_names(layer, written, fixed=fixed))) for name, layer in module.named_modules())
        self._layers = [each for each in found if each[2]]
        # dictionaries, and functions of C: this is asked before and behind every task where nothing flushes
        self._readers = [(_reader(names), vars(layer)) for _, layer, names in self._layers]

    def now(self) -> Values:
        """Return all values."""
        return tuple([read(values) for read, values in self._readers])

    def check(self, before: Values) -> None:
        """Raise RefusedError if a value is not what it was."""
        if (now := self.now()) != before:
            raise on_the_way(self._difference(before, now))

    def _difference(self, before: Values, now: Values) -> str:
        """Say which value is another now."""
        name, names, was, now_is = next(
            (layer[0], layer[2], *pair) for layer, *pair in zip(self._layers, before, now, strict=True) if pair[0] != pair[1]
        )
        # strict=False: a name alone has its value twice
        setting, old, new = next(each for each in zip(names, was, now_is, strict=False) if each[1] != each[2])
        place = f"{name}.{setting}".lstrip(".")
        return f"stage {self._stage}'s {place} was changed from {old!r} to {new!r}"

    def take_over(self, other: LayerSettings) -> None:
        """Take the values of another copy of the stage."""
        for (_, own, names), (_, layer, _) in zip(self._layers, other._layers, strict=True):
            # past nn.Module.__setattr__, which looks for parameters first
            vars(own).update((name, vars(layer)[name]) for name in names)


def _reader(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return what reads values of these names."""
    # of one name alone itemgetter gives no tuple
    return itemgetter(*names, *names[: len(names) == 1])


def _names(layer: nn.Module, written: frozenset[str] | None, *, fixed: bool) -> Iterator[str]:
    """Yield the names of a layer's settings."""
    declared = {"training", *getattr(type(layer), "__constants__", ())}
    if fixed:
        declared -= written or frozenset()
    # a hook is somebody's own code as well, which may write what it likes to the layer that it is called with
    only_declared = fixed or written is None or bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks)
    for name, value in vars(layer).items():
        if type(value) not in _PLAIN:
            continue
        if name in declared or not (only_declared or name.startswith("_") or name in (written or ())):
            yield name


def _written_by(kinds: Iterable[type]) -> frozenset[str] | None:
    """Return the names of attributes that classes of layers write outside of `__init__`; None if nobody can tell."""
    # all classes of a stage together: a forward may write to a layer inside; torch's own write plain values nowhere
    classes = {each for kind in kinds for each in kind.__mro__ if issubclass(each, nn.Module) and each is not nn.Module}
    names: set[str] = set()
    for code in (code for each in classes if not each.__module__.startswith("torch.") for code in _codes(each)):
        if "setattr" in code.co_names:
            return None
        names |= {each.argval for each in get_instructions(code) if each.opname in _WRITES}
        # elsewhere, in a train() of its own say, it is the caller who changes modes
        if code.co_name == "forward" and not {"eval", "train"}.isdisjoint(code.co_names):
            names.add("training")
    return frozenset(names)


def _codes(kind: type) -> Iterator[CodeType]:
    """Yield the code of a class's own methods but `__init__`, with that of the functions inside."""
    for name, value in vars(kind).items():
        functions: tuple[Callable[..., Any] | None, ...] = (value,)
        if isinstance(value, property):
            functions = (value.fget, value.fset, value.fdel)
        elif isinstance(value, classmethod | staticmethod):
            functions = (value.__func__,)
        for function in functions if name != "__init__" else ():
            code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
            if isinstance(code, CodeType):
                yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
