"""Find out, by running a model once, how its forward runs its list of blocks, and what stands before and behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from executor.model.cutting.example_run import Call, Diary, watched
from schedir.errors import RefusedError

REMEDY = "give its stages as a list of modules"


@dataclass(frozen=True, slots=True)
class ShapeOnly:
    """Goes on in place of an argument that only the first stage computes with, an image say."""

    size: torch.Size
    dtype: torch.dtype

    @classmethod
    def of(cls, value: Any) -> Any:
        """Return the shape of a floating tensor, anything else as it is."""
        return cls(value.shape, value.dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    @staticmethod
    def shown(value: Any, hidden: Tensor) -> Any:
        """Return zeros for a shape, anything else as it is."""
        return hidden.new_zeros((), dtype=value.dtype).expand(value.size) if isinstance(value, ShapeOnly) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The list of blocks of a model, and the modules around it by their names."""

    path: str
    """The nn.ModuleList."""
    count: int
    containers: frozenset[str]
    """The modules that it lies in."""
    before: frozenset[str]
    """What is called before the first block only: the first stage's. What is named nowhere is the last one's."""
    everywhere: frozenset[str]
    """Tables without parameters: every stage has its own."""
    num_outputs: int | None
    """A block gives a tuple of so many, the hidden state first; None: the hidden state alone."""
    hidden_name: str | None
    """The argument by which a block takes the hidden state; None: its first."""
    handed: tuple[tuple[int, int | str], ...]
    """What a block gives beside the hidden state and the next one takes, as T5's distances between tokens: (place in the tuple
    that it gives, place or name of the argument)."""
    settings: Mapping[str, Any]
    """What the model is called with beside its arguments."""
    main_name: str | None
    """The name of the model's main argument, where it has one."""
    sends_main: bool = False
    """The main argument (the first, or the one of that name) goes to all stages if it is a floating tensor, not only its shape."""

    def names(self) -> list[str]:
        """Return the names of all blocks."""
        return [f"{self.path}.{number}" for number in range(self.count)]

    def passed_on(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Call:
        """Return the model's arguments as the next stage gets them."""
        if self.sends_main:
            return tuple(arguments), named
        shapes = {name: ShapeOnly.of(value) if name == self.main_name else value for name, value in named.items()}
        return (*map(ShapeOnly.of, arguments[:1]), *arguments[1:]), shapes


def list_of_blocks(model: nn.Module) -> str | None:
    """Return the name of a model's longest nn.ModuleList that lies in no other, None if there is none."""
    lists = {name: len(module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module)}
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    return max(outer, key=lists.__getitem__, default=None)


def survey(model: nn.Module, call: Call, *, settings: Mapping[str, Any], main_name: str | None) -> Blocks:
    """Run a model once, without a trace, and say how it runs its blocks; raise RefusedError if not one by one."""
    path, name = list_of_blocks(model), type(model).__name__
    if path is None:
        raise RefusedError(f"{name} holds no nn.ModuleList of blocks to cut between: {REMEDY}")
    containers = {".".join(path.split(".")[:length]) for length in range(1, path.count(".") + 1)}
    parts = _parts(model, {"", *containers}, path)
    owner = next((each for each in ("", *containers) if list(model.get_submodule(each).parameters(recurse=False))), None)
    if owner is not None:
        holder = type(model.get_submodule(owner)).__name__
        raise RefusedError(f"{holder} has parameters of its own beside the blocks, which no single stage could train: {REMEDY}")
    blocks = [f"{path}.{number}" for number in range(len(model.get_submodule(path).__dict__["_modules"]))]
    diary = watched(model, [*parts, *blocks], call=call, settings=settings)
    _check_order(diary, blocks, name)
    before, everywhere = _roles(model, diary, parts, first=blocks[0])
    output = diary.outputs[blocks[0]]
    return Blocks(
        path=path,
        count=len(blocks),
        containers=frozenset(containers),
        before=frozenset(before),
        everywhere=frozenset(everywhere),
        num_outputs=len(output) if isinstance(output, tuple) else None,
        hidden_name=_hidden_name(diary, blocks, name),
        handed=_handed(diary, blocks),
        settings=settings,
        main_name=main_name,
    )


def _parts(model: nn.Module, containers: set[str], path: str) -> list[str]:
    """Return the names of the modules that stand directly in a container, the blocks' own way left out."""
    names = [f"{each}.{child}" if each else child for each in containers for child, _ in model.get_submodule(each).named_children()]
    return [name for name in names if name not in containers and name != path]


def _check_order(diary: Diary, blocks: list[str], name: str) -> None:
    """Refuse blocks that are not called one behind the other, each once."""
    known = set(blocks)
    called = [call for call in diary.calls if call[1] in known]
    if called != [(what, block) for block in blocks for what in ("enter", "leave")]:
        raise RefusedError(f"{name} does not call {blocks[0]}..{blocks[-1]} once each, one behind the other: {REMEDY}")


def _roles(model: nn.Module, diary: Diary, parts: list[str], *, first: str) -> tuple[set[str], set[str]]:
    """Return what only the first stage has, and what every stage has."""
    before, everywhere, name = set(), set(), type(model).__name__
    for part in parts:
        module = model.get_submodule(part)
        early, late = diary.is_around(part, first)
        bare = not any(True for _ in module.parameters())
        if early and bare and (late or any(True for _ in module.buffers())):
            everywhere.add(part)
        elif early and late:
            raise RefusedError(f"{part} of {name} is called before and behind the blocks, so two stages have it: {REMEDY}")
        elif early:
            if not isinstance(diary.outputs[part], Tensor):
                raise RefusedError(f"{part} of {name} gives more than a tensor to the blocks: {REMEDY}")
            before.add(part)
    return before, everywhere


def _handed(diary: Diary, blocks: list[str]) -> tuple[tuple[int, int | str], ...]:
    """Return what every block gives the next one beside the hidden state: the very tensors that come as its arguments."""
    found: list[set[tuple[int, int | str]]] = []
    for giver, taker in pairwise(blocks):
        given, (arguments, named) = diary.outputs[giver], diary.inputs[taker]
        taken: list[tuple[int | str, Any]] = [*enumerate(arguments), *named.items()]
        others = list(enumerate(given))[1:] if isinstance(given, tuple) else []
        found.append({(k, place) for k, value in others for place, got in taken if isinstance(value, Tensor) and got is value})
    return tuple(sorted(set.intersection(*found), key=str)) if found else ()


def _hidden_name(diary: Diary, blocks: list[str], name: str) -> str | None:
    """Return the argument by which blocks take what the one before gives; raise RefusedError if they do not."""
    found: set[str | None] = set()
    for giver, taker in pairwise(blocks):
        given = diary.outputs[giver]
        hidden = given[0] if isinstance(given, tuple) and given else given
        arguments, named = diary.inputs[taker]
        first: list[str | None] = [None] if arguments and arguments[0] is hidden else []
        found.update(first or [key for key, value in named.items() if value is hidden][:1] or ["?"])
    if len(found) > 1 or "?" in found:
        raise RefusedError(f"blocks of {name} do not take what the block before gives, and nothing else of it: {REMEDY}")
    return found.pop() if found else None
