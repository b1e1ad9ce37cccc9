"""One copy of a stage: its module with an optimizer of its own, and the parameters that are trained in the module's places.

    module.weight ── bind ──▶ one version of the weights while it computes ── restore ──▶ the very object that it was

A parameter that another stage owns (`executor.model.ties`) has a private one in its place as long as the stage is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from executor.home import HOST, Home
from executor.model.admission import made_optimizer, made_scheduler
from executor.model.layer_settings import LayerSettings
from executor.model.predictors import AdamPrediction, Predictor, make_predictor
from executor.model.ties import trainable_parameters


class StageCopy:
    """One copy of a stage: a module with an optimizer of its own."""

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: Callable[[list[nn.Parameter]], Optimizer],
        make_scheduler: Callable[[Optimizer], LRScheduler] | None,
        *,
        foreign: Sequence[nn.Parameter] = (),
    ) -> None:
        """`foreign`: the module's parameters that another stage owns; the copy trains, or has, private ones in their place."""
        self.module = module
        self.home = HOST
        """Where it computes."""
        self.defers_batch_norm = False
        """A mini-batch moves BatchNorm's running statistics, not a micro-batch."""
        private = {id(parameter): nn.Parameter(parameter.data, parameter.requires_grad) for parameter in foreign}
        self._originals = trainable_parameters(module)
        self.parameters = tuple(private.get(id(parameter), parameter) for parameter in self._originals)
        """The trainable parameters, each once: the module's own, private ones for those of another stage. The optimizer holds these
        very objects."""
        self.pairs = tuple((parameter, private.get(id(parameter), parameter)) for parameter in module.parameters())
        """(original, own) of every parameter, frozen ones among them, each once; the same object but for those of another stage."""
        self._written_back: frozenset[int] = frozenset()
        self.optimizer = made_optimizer(make_optimizer, list(self.parameters)) if self.parameters else None
        self.scheduler: LRScheduler | None = None
        if make_scheduler is not None and self.optimizer is not None:
            self.scheduler = made_scheduler(make_scheduler, self.optimizer)
        self._predictor: Predictor | None = None
        self._homes = tuple(_Home.find(module, self._originals))
        self._foreign = tuple((parameter, private[id(parameter)]) for parameter in foreign)
        """(original, private)."""
        self._foreign_homes = tuple(_Home.find(module, foreign))

    def predictor(self, adam: AdamPrediction | None) -> Predictor | None:
        """Return what predicts the weights from the last update, be it one of an earlier run; None if nobody predicts them.

        `adam` is None for a run without predictions: then updates are not watched, and what was known is forgotten.
        """
        if adam is None or self.optimizer is None:
            self._predictor = None
        elif self._predictor is None:
            self._predictor = make_predictor(self.optimizer, self.parameters, adam)
        return self._predictor

    def share_memory(self, number: int, parameter: nn.Parameter) -> None:
        """Let a trainable parameter lie in the memory of one of another stage on the same device, which updates both."""
        own = self.parameters[number]
        own.data = parameter.data
        if self.optimizer is not None:
            self.optimizer.state.pop(own, None)

    def follow_owner(self, number: int, owner: StageCopy, owners_number: int, *, apart: bool) -> None:
        """Let a trainable parameter know what the stage that owns the weights knows of them, in memory of its own if `apart`."""
        own, owned = self.parameters[number], owner.parameters[owners_number]
        own.data = owned.data.to(own.device, copy=apart)
        assert self.optimizer is not None
        assert owner.optimizer is not None
        self.optimizer.state.pop(own, None)
        if owned in owner.optimizer.state:
            self.optimizer.state[own] = deepcopy(owner.optimizer.state[owned])
            if owned.device != own.device:
                self.optimizer.load_state_dict(self.optimizer.state_dict())  # which moves the state to its parameters

    def write_back(self, numbers: frozenset[int]) -> None:
        """Let `restore` give these private parameters' values to the originals: their owner trains in another process."""
        self._written_back = numbers

    def take_shared(self) -> None:
        """Give private parameters the values that the originals have got."""
        for original, private in self._foreign:
            if private.data_ptr() != original.data_ptr():
                private.data.copy_(original.data)

    def drifted(self) -> int | None:
        """Return the number of a private parameter that has other values than the original; None if there is none."""
        pairs = enumerate(zip(self.parameters, self._originals, strict=True))
        return next((number for number, (own, original) in pairs if not same_values(own.data, original.data)), None)

    def train_privately(self) -> None:
        """Put private parameters in the places of those of other stages."""
        for original, private in self._foreign:
            if not private.requires_grad:
                private.data = original.data  # never changed, so in the same memory until the module moves to another device
        for home in self._foreign_homes:
            home.put(self._foreign[home.number][1])

    def show(self) -> None:
        """Let the module have newest true weights in tensors that are never let go of.

        Of weights that another stage owns it shows the original, if that lies on this device: the caller has one parameter then, as
        in a model that is not cut, and a change of it is one change.
        """
        self._write_back()
        pairs = zip(self._originals, self.parameters, strict=True)
        self.bind([original if original.device == own.device else own for original, own in pairs])

    def _write_back(self) -> None:
        for number in self._written_back:
            self._originals[number].data.copy_(self.parameters[number].data)

    def restore(self) -> None:
        """Give the module its own parameters back; they have the newest true weights."""
        self._write_back()
        self.bind(self._originals)
        for home in self._foreign_homes:
            home.put(self._foreign[home.number][0])

    def drop_private(self) -> None:
        """Let go of private memory, and of what the optimizer knows of it: the next training begins with what the owner has."""
        for original, private in self._foreign:
            private.data = original.data
            if self.optimizer is not None:
                self.optimizer.state.pop(private, None)

    def move_to(self, home: Home) -> None:
        """Let weights, buffers and the optimizer's state live somewhere; the parameters stay the objects that they are."""
        self.home, device = home, home.device
        tensors = (*self.module.parameters(), *self.module.buffers())
        if all(tensor.device == device for tensor in tensors):
            return
        self.module.to(device)
        if self.optimizer is not None:
            self.optimizer.load_state_dict(self.optimizer.state_dict())  # which moves the state to its parameters

    def prediction_state(self) -> list[Tensor | None]:
        """Return by parameter what its prediction remembers of the last update; None if nobody predicts or there was none."""
        return [None] * len(self.parameters) if self._predictor is None else self._predictor.state()

    def load_prediction_state(self, state: Sequence[Tensor | None]) -> None:
        """Let predictions, if there are any, go on from what `prediction_state` gave."""
        if self._predictor is not None:
            self._predictor.load_state(state)

    def follow(self, other: StageCopy) -> None:
        """Take over weights, buffers, settings and what optimizer, scheduler and predictor know, of another copy of the stage."""
        self.module.load_state_dict(other.module.state_dict())
        LayerSettings(self.module).take_over(LayerSettings(other.module))
        if self.optimizer is not None and other.optimizer is not None:
            self.optimizer.load_state_dict(deepcopy(other.optimizer.state_dict()))
            self._predictor = None if other._predictor is None else other._predictor.moved(self.optimizer, self.parameters)
        if self.scheduler is not None and other.scheduler is not None:
            self.scheduler.load_state_dict(deepcopy(other.scheduler.state_dict()))

    def bind(self, tensors: Sequence[nn.Parameter]) -> None:
        """Let the module compute with other tensors in place of its trainable parameters, given in their order."""
        for home in self._homes:
            home.put(tensors[home.number])


def same_values(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors have the same bits; those in one memory have."""
    return one.data_ptr() == other.data_ptr() or torch.equal(one.nan_to_num(), other.to(one.device).nan_to_num())


class _Home:
    """A place in a module where one of the stage's trainable parameters stands; a tied one stands in several."""

    __slots__ = ("_direct", "_name", "_owner", "number")

    def __init__(self, owner: nn.Module, name: str, number: int) -> None:
        self._owner, self._name, self.number = owner, name, number
        # A recurrent layer overrides __setattr__, to keep its flat list of weights in step; the others are set 40 times faster.
        self._direct = type(owner).__setattr__ is nn.Module.__setattr__

    @classmethod
    def find(cls, module: nn.Module, parameters: Sequence[nn.Parameter]) -> Iterator[_Home]:
        """Yield all places of these parameters."""
        numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
        for owner in module.modules():
            for name, parameter in owner.named_parameters(recurse=False, remove_duplicate=False):
                if id(parameter) in numbers:
                    yield cls(owner, name, numbers[id(parameter)])

    def put(self, tensor: nn.Parameter) -> None:
        """Let the module find another tensor in this place."""
        if self._direct:
            self._owner._parameters[self._name] = tensor
        else:
            setattr(self._owner, self._name, tensor)
