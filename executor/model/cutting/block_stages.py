"""Stages of a model whose own forward runs a list of blocks one after the other; that forward stays the forward of every stage.

    the model:    embed ─▶ block 0 ─▶ block 1 ─▶ block 2 ─▶ block 3 ─▶ head
    stage 0:      embed ─▶ block 0 ─▶ block 1 ─▶ stop                           gives (hidden, the model's arguments)
    stage 1:      ( ) ──▶   ( )   ──▶  (hidden) ─▶ block 2 ─▶ block 3 ─▶ head   ( ): a stand-in, which gives what was received

So masks, positions and whatever else the model makes of its arguments is made by its own code in every stage. A stage's modules are
the model's own, under the names that they have there; only containers on the way to the blocks, and stand-ins, are made anew.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from executor.model.cutting.block_survey import Blocks, ShapeOnly
from schedir.errors import RefusedError


def block_stages(model: nn.Module, blocks: Blocks, starts: tuple[int, ...]) -> list[nn.Module]:
    """Return the stages; stage k begins with block `starts[k]`, the first with 0 and all that stands before."""
    stops = (*starts[1:], blocks.count)
    return [BlockStage(model, blocks, start, stop=stop) for start, stop in zip(starts, stops, strict=True)]


class BlockStage(nn.Module):
    """Some neighbouring blocks of a model, with what the model has before its first or behind its last one."""

    def __init__(self, model: nn.Module, blocks: Blocks, start: int, *, stop: int) -> None:
        """Take the blocks from `start` to before `stop`."""
        super().__init__()
        self._is_first, self._is_last = start == 0, stop == blocks.count
        self._blocks, self._range = blocks, range(start, stop)
        self._received = _Received()
        # Not registered: the stage's modules have the names that they have in the model, without a word before.
        self.__dict__["_root"] = self._made_anew(model, "")
        for name, child in self.__dict__["_root"].named_children():
            self.add_module(name, child)
        # its own buffers are the stage's, wherever it moves; a later stage has them for itself, as it has tables
        root = self.__dict__["_root"]
        for name, buffer in root.named_buffers(recurse=False):
            root._buffers[name] = buffer if self._is_first else buffer.clone()
        self.__dict__["_buffers"], self._non_persistent_buffers_set = root._buffers, root._non_persistent_buffers_set

    def __repr__(self) -> str:
        name = type(self.__dict__["_root"]).__name__
        return f"<{name}: blocks {self._range.start}..{self._range.stop - 1} of {self._blocks.count}>"

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Run the model's forward; return its output on the last stage, else (hidden, arguments, named arguments).

        Behind the hidden state stands what else a block hands to the next, where there is such a thing.

        The first stage takes what the model takes, the others what the one before gives.
        """
        arguments: Any = inputs
        if not self._is_first:
            self._received.hidden, *self._received.handed, arguments, named = inputs
        root = self.__dict__["_root"]
        root.training = self.training
        try:
            output = root(*self._shown(arguments), **self._shown(named), **self._blocks.settings)
        except _Reached as reached:
            hidden, arguments, named = reached.hidden, *self._blocks.passed_on(arguments, named)
            return hidden, *reached.handed, arguments, named
        finally:
            self._received.hidden, self._received.handed = None, []
        if not self._is_last:
            raise RefusedError(
                f"forward of {type(root).__name__} passes over {self._blocks.path}.{self._range.stop}, where the "
                "stage ends: switch off what leaves blocks out (layerdrop), or give the stages as a list of modules"
            )
        return output

    def _shown(self, arguments: Any) -> Any:
        """Return arguments with something of the same shape in place of what was not passed on."""
        hidden = self._received.hidden
        if hidden is None:
            return arguments
        if isinstance(arguments, dict):
            return {key: ShapeOnly.shown(value, hidden) for key, value in arguments.items()}
        return tuple(ShapeOnly.shown(value, hidden) for value in arguments)

    def _made_anew(self, module: nn.Module, name: str) -> nn.Module:
        """Return a copy of a container whose children are those of this stage."""
        made: nn.Module = _shallow(module)
        for child_name, child in module.named_children():
            made._modules[child_name] = self._child(child, f"{name}.{child_name}" if name else child_name)
        return made

    def _child(self, child: nn.Module, name: str) -> nn.Module:
        blocks = self._blocks
        if name == blocks.path:
            assert isinstance(child, nn.ModuleList)
            return self._list_of(child)
        if name in blocks.containers:
            return self._made_anew(child, name)
        if name in blocks.everywhere:
            return child if self._is_first else deepcopy(child)
        belongs = self._is_first if name in blocks.before else self._is_last
        return child if belongs else _StandIn(child, self._received)

    def _list_of(self, whole: nn.ModuleList) -> nn.ModuleList:
        """Return the list with stand-ins for earlier blocks, so that every block keeps its number; behind the last one it stops."""
        made: nn.ModuleList = _shallow(whole)
        made._modules.clear()
        for number in range(self._range.stop):
            block = whole[number]
            own = number >= self._range.start
            made.append(block if own else _StandIn(block, self._received, blocks=self._blocks))
        if not self._is_last:
            made.append(_Stop(whole[self._range.stop], self._blocks))
        return made


@dataclass(slots=True)
class _Received:
    """What a stage works on."""

    hidden: Tensor | None = None
    handed: list[Any] = field(default_factory=list)
    """What the block before gives beside it, in the order of `Blocks.handed`."""


class _Reached(Exception):  # noqa: N818 - not an error: the end of a stage
    """Ends the model's forward where its stage ends."""

    def __init__(self, hidden: Tensor, handed: tuple[Any, ...]) -> None:
        super().__init__()
        self.hidden, self.handed = hidden, handed


class _Absent(nn.Module):
    """Stands for a module of another stage; whoever asks for its attributes hears what they are there, weights without values."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        tensors = (*original.parameters(), *original.buffers())
        empty = {id(tensor): torch.empty_like(tensor, device="meta") for tensor in tensors}
        self.__dict__["_original"] = deepcopy(original, empty)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_original"], name)


class _StandIn(_Absent):
    """Gives what the stage has received."""

    def __init__(self, original: nn.Module, received: _Received, *, blocks: Blocks | None = None) -> None:
        """`blocks` for one of the blocks, which may give more than the hidden state."""
        super().__init__(original)
        self._received = received
        self._num_outputs, self._handed = (None, ()) if blocks is None else (blocks.num_outputs, blocks.handed)

    def forward(self, *_: Any, **__: Any) -> Any:
        hidden = self._received.hidden
        if self._num_outputs is None:
            return hidden
        output = [hidden, *[None] * (self._num_outputs - 1)]
        for (place, _name), value in zip(self._handed, self._received.handed, strict=True):
            output[place] = value
        return tuple(output)


class _Stop(_Absent):
    """Stands for the first block of the next stage."""

    def __init__(self, original: nn.Module, blocks: Blocks) -> None:
        super().__init__(original)
        self._hidden_name, self._handed = blocks.hidden_name, blocks.handed

    def forward(self, *arguments: Any, **named: Any) -> Any:
        handed = tuple(arguments[place] if isinstance(place, int) else named[place] for _, place in self._handed)
        raise _Reached(arguments[0] if self._hidden_name is None else named[self._hidden_name], handed)


def _shallow(module: Any) -> Any:
    """Return a module of the same class and attributes, with dictionaries of its own."""
    kind: Any = type(module)
    made = kind.__new__(kind)
    made.__dict__ = dict(module.__dict__)
    for name in ("_parameters", "_buffers", "_modules"):
        made.__dict__[name] = dict(made.__dict__[name])
    return made
