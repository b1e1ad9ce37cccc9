"""Run a model once on an example of its input, and note which of its modules are called, in which order, with what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from executor.global_random import same_random
from schedir.errors import RefusedError

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments, and arguments by name."""


def as_call(value: Any) -> Call:
    """Return a model's input as arguments: a tuple by place, a dict by name."""
    if isinstance(value, Mapping):
        return (), dict(value)
    return (tuple(value) if isinstance(value, tuple | list) else (value,)), {}


@dataclass(slots=True)
class Diary:
    """What was called, in order: entering and leaving."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    """(`enter` or `leave`, name)."""
    inputs: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    def enter(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note a call that begins."""
        self.calls.append(("enter", name))
        self.inputs[name] = arguments, named

    def leave(self, name: str, output: Any) -> None:
        """Note a call that ends."""
        self.calls.append(("leave", name))
        self.outputs[name] = output

    def times(self, name: str) -> list[int]:
        """Return when a module was entered."""
        return [time for time, call in enumerate(self.calls) if call == ("enter", name)]

    def is_around(self, name: str, first: str) -> tuple[bool, bool]:
        """Tell whether a module is called before the first block begins, and whether it is afterwards."""
        begin = self.times(first)[0]
        return any(time < begin for time in self.times(name)), any(time > begin for time in self.times(name))


def watched(model: nn.Module, names: list[str], *, call: Call, settings: Mapping[str, Any]) -> Diary:
    """Run the model in eval mode, and note the calls of some modules."""
    diary = Diary()
    with ExitStack() as hooks, evaluating(model):
        for name in names:
            module = model.get_submodule(name)
            hooks.callback(module.register_forward_pre_hook(_enters(diary, name), with_kwargs=True).remove)
            hooks.callback(module.register_forward_hook(_leaves(diary, name)).remove)
        run(model, call, settings)
    return diary


def run(model: nn.Module, call: Call, settings: Mapping[str, Any]) -> Any:
    """Run a model on its example; raise RefusedError with its own words if it does not take it."""
    try:
        return model(*call[0], **call[1], **settings)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        reason, name = " ".join(str(error).split())[:150], type(model).__name__
        raise RefusedError(f"{name} does not run on the example ({reason}): give example=, an input of it") from error


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Put models in eval mode, without gradients; modes and random numbers are afterwards what they were."""
    modes = {module: module.training for model in models for module in model.modules()}
    with same_random(), torch.no_grad():
        try:
            for model in models:
                model.eval()
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


def _enters(diary: Diary, name: str) -> Any:
    return lambda _, arguments, named: diary.enter(name, arguments, named)


def _leaves(diary: Diary, name: str) -> Any:
    return lambda _, __, output: diary.leave(name, output)
