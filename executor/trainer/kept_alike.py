"""One thing of the caller's model, and all copies that a training has of it: they are to have the same values.

a parameter     the caller's own, a private one for every further stage that holds it, one for every replica of its stage
buffers         of one layer together, in the caller's module and in every replica: not every kernel counts what it changes
settings        of one stage together: which of its layers train, and with what (`executor.model.layer_settings`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from executor.model.changes import changes
from executor.model.layer_settings import LayerSettings
from executor.model.pipeline import Pipeline
from executor.model.stage_copy import StageCopy, same_values

Mark = tuple[Any, ...]
"""Of one copy: another one once it was changed."""


class Alike(Protocol):
    """Copies of one thing; the first is the caller's own."""

    label: str
    """Words for it."""
    stages: tuple[int, ...]
    """Those that have it."""

    @property
    def num_copies(self) -> int:
        """How many there are."""
        ...

    def marks(self) -> list[Mark]:
        """Return what tells of every copy whether it was changed since the last call."""
        ...

    def num_changes(self, before: Sequence[Mark], now: Sequence[Mark]) -> int:
        """Return how often the caller's own was changed between two marks."""
        ...

    def shows_all(self) -> bool:
        """Tell whether the caller's own copy has what all have, whichever process trains them."""
        ...

    def agree(self, one: int, other: int) -> bool:
        """Tell whether two copies have the same values."""
        ...

    def take_over(self, source: int, target: int) -> None:
        """Give one copy the values of another."""
        ...


class AlikeParameter:
    """A parameter, and what is trained in its stead."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.stages: tuple[int, ...] = ()
        self._tensors: list[nn.Parameter] = []

    def add(self, stage: int, tensors: Sequence[nn.Parameter]) -> None:
        """Know of copies, of which some may be known, in a stage."""
        self.stages = tuple(dict.fromkeys((*self.stages, stage)))
        known = {id(tensor) for tensor in self._tensors}
        self._tensors += {id(tensor): tensor for tensor in tensors if id(tensor) not in known}.values()

    @property
    def num_copies(self) -> int:
        """How many there are."""
        return len(self._tensors)

    def marks(self) -> list[Mark]:
        """Return how often every copy was changed."""
        return [(changes(tensor),) for tensor in self._tensors]

    def num_changes(self, before: Sequence[Mark], now: Sequence[Mark]) -> int:
        """Return how often the caller's own was changed between two marks."""
        return int(now[0][0] - before[0][0])

    def shows_all(self) -> bool:
        """Tell whether a change of any copy is one of all."""
        return all(in_one_memory(self._tensors[0], tensor) for tensor in self._tensors[1:])

    def agree(self, one: int, other: int) -> bool:
        """Tell whether two copies have the same values."""
        return same_values(self._tensors[one].data, self._tensors[other].data)

    def take_over(self, source: int, target: int) -> None:
        """Give one copy the values of another, through `.data`: that is no change of the caller's."""
        if not in_one_memory(self._tensors[source], self._tensors[target]):
            self._tensors[target].data.copy_(self._tensors[source].data)


class AlikeBuffers:
    """The buffers of one layer."""

    def __init__(self, stage: int, owners: Sequence[nn.Module]) -> None:
        self.label = f"a buffer of stage {stage}'s {type(owners[0]).__name__}"
        self.stages: tuple[int, ...] = (stage,)
        self._owners = owners
        self._marked: list[Tensor] = []
        """Those of the last marks: as long as they are held, no other tensor has their identity."""

    @property
    def num_copies(self) -> int:
        """How many there are."""
        return len(self._owners)

    def marks(self) -> list[Mark]:
        """Return which tensors every copy has, and how often they were changed."""
        found = [[tensor for tensor in owner._buffers.values() if tensor is not None] for owner in self._owners]
        marks = [tuple(number for tensor in tensors for number in (id(tensor), changes(tensor))) for tensors in found]
        self._marked = [tensor for tensors in found for tensor in tensors]
        return marks

    def num_changes(self, before: Sequence[Mark], now: Sequence[Mark]) -> int:
        """Return how often the caller's own were changed between two marks; once if he has put others in their places."""
        same = before[0][::2] == now[0][::2]
        return sum(now[0][1::2]) - sum(before[0][1::2]) if same else 1

    def shows_all(self) -> bool:
        """Tell whether a change of any copy is one of all."""
        return len(self._owners) == 1

    def agree(self, one: int, other: int) -> bool:
        """Tell whether two copies have the same values."""
        ours, theirs = self._of(one), self._of(other)
        return ours.keys() == theirs.keys() and all(
            ours[name].shape == theirs[name].shape and same_values(ours[name], theirs[name]) for name in ours
        )

    def take_over(self, source: int, target: int) -> None:
        """Give one copy the values of another."""
        theirs = self._of(target)
        for name, tensor in self._of(source).items():
            if name not in theirs or theirs[name].shape != tensor.shape:
                self._owners[target]._buffers[name] = tensor.detach().clone()
            elif not in_one_memory(theirs[name], tensor):
                theirs[name].data.copy_(tensor.data)

    def _of(self, copy: int) -> Mapping[str, Tensor]:
        return {name: tensor for name, tensor in self._owners[copy]._buffers.items() if tensor is not None}


class AlikeSettings:
    """How the layers of one stage compute."""

    def __init__(self, stage: int, modules: Sequence[nn.Module]) -> None:
        self.label = f"how stage {stage} computes (training, or a setting of a layer)"
        self.stages: tuple[int, ...] = (stage,)
        self._copies = [LayerSettings(module, stage) for module in modules]

    @property
    def num_copies(self) -> int:
        """How many there are."""
        return len(self._copies)

    def marks(self) -> list[Mark]:
        """Return the settings of every copy."""
        return [copy.now() for copy in self._copies]

    def num_changes(self, before: Sequence[Mark], now: Sequence[Mark]) -> int:
        """Return 1 if the caller's own were changed between two marks: a setting changes as often as its value is another."""
        return int(now[0] != before[0])

    def shows_all(self) -> bool:
        """Return True: training changes none of them."""
        return True

    def agree(self, one: int, other: int) -> bool:
        """Tell whether two copies have the same settings."""
        return self._copies[one].now() == self._copies[other].now()

    def take_over(self, source: int, target: int) -> None:
        """Give one copy the settings of another."""
        self._copies[target].take_over(self._copies[source])

    def check(self, before: Sequence[Mark]) -> None:
        """Raise RefusedError if the caller's own were changed, when parts of mini-batches are still to be computed."""
        self._copies[0].check(before[0])


def in_one_memory(one: Tensor, other: Tensor) -> bool:
    """Tell whether a change of one of two tensors of the same shape is a change of the other."""
    return one.device == other.device and one.data_ptr() == other.data_ptr()


def parameters_of(pipeline: Pipeline, trained: Mapping[int, Sequence[StageCopy]]) -> Iterator[AlikeParameter]:
    """Yield the caller's parameters, each once; `trained`: the copies of the stages that are trained here."""
    found: dict[int, AlikeParameter] = {}
    for stage, module in enumerate(pipeline.stages):
        copies = trained.get(stage, ())
        # in a module that is trained here private ones may stand in the places of the caller's own
        originals = [pair[0] for pair in pipeline.copy(stage, 0).pairs] if copies else list(module.parameters())
        for number, original in enumerate(originals):
            label = f"a parameter of stage {stage}, of shape {list(original.shape)},"
            alike = found.setdefault(id(original), AlikeParameter(label))
            alike.add(stage, [original, *(tensor for copy in copies for tensor in copy.pairs[number])])
    yield from found.values()


def settings_of(pipeline: Pipeline, trained: Mapping[int, Sequence[StageCopy]]) -> Iterator[AlikeSettings]:
    """Yield the settings of the caller's stages; `trained`: the copies of the stages that are trained here."""
    for stage, module in enumerate(pipeline.stages):
        yield AlikeSettings(stage, [module, *(copy.module for copy in trained.get(stage, ()) if copy.module is not module)])


def buffers_of(pipeline: Pipeline, trained: Mapping[int, Sequence[StageCopy]]) -> Iterator[AlikeBuffers]:
    """Yield the buffers of the caller's layers that have some."""
    for stage, module in enumerate(pipeline.stages):
        others = [copy.module for copy in trained.get(stage, ()) if copy.module is not module]
        for owners in zip(module.modules(), *(other.modules() for other in others), strict=True):
            if len(owners[0]._buffers):
                yield AlikeBuffers(stage, owners)
