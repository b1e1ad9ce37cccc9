"""A model in stages with its loss and optimizers: what `train` needs beside the task graph and the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from enum import StrEnum
from functools import partial
from itertools import accumulate, pairwise
from numbers import Integral
from threading import Lock
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from executor.home import HOST, Home
from executor.model.admission import check_stages, made_optimizer, made_scheduler
from executor.model.data import LossReduction, LossWeight, loss_scales, loss_weights
from executor.model.norm_ways import NormWay
from executor.model.predictors import AdamPrediction, Predictor, make_predictor
from executor.model.split_ways import Split
from executor.model.stages import Stages
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.expect import expect, expect_callable

Loss = Callable[[Any, Any], Tensor]
"""(output, target) of a micro-batch -> its mean loss, a tensor with one element."""


_CLAIMING = Lock()
"""Held while a training makes sure that it is the only one of its pipeline."""


class Pipeline:
    """Stages, loss and optimizers. Training continues where the last run with the same pipeline ended."""

    def __init__(  # noqa: PLR0913 - one keyword for each part of a training recipe
        self,
        stages: nn.Sequential | Sequence[nn.Module],
        *,
        loss: Loss,
        optimizer: Callable[[list[nn.Parameter]], Optimizer],
        balance: Sequence[int] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        loss_reduction: str = LossReduction.MEAN,
        loss_weight: LossWeight | None = None,
        adam_prediction: str = AdamPrediction.BIAS_CORRECTED,
        split: str = Split.DEFERRED,
        batch_norm: str = NormWay.PLAIN,
    ) -> None:
        """Take a list of stages, or an nn.Sequential whose layers are the stages; `balance` gives layers per stage instead.

        `loss(output, target)` is the mean over a micro-batch; `loss_weight(target)` is what that mean counts in its mini-batch
        (default: its samples); with `loss_reduction="sum"` losses are added. `optimizer(parameters)` is called once for every
        copy of a stage that has trainable parameters, `scheduler(optimizer)` likewise; it steps after every update.
        `adam_prediction` is bias-corrected or literal. `split` says how backwards are split where a schedule splits them:
        deferred (weight gradients from kept inputs and output gradients of layers) or differentiate (twice). `batch_norm` says
        what moves running statistics: plain (every micro-batch) or deferred (a mini-batch, once, as if it had not been cut).
        Raises ArgumentError, RefusedError.
        """
        expect_callable(loss, "loss", "give a function of (output, target)")
        expect_callable(optimizer, "optimizer", "give a function of a list of parameters, such as torch.optim.Adam")
        for name, function in (("scheduler", scheduler), ("loss_weight", loss_weight)):
            if function is not None:
                expect_callable(function, name, "give a function, or leave it out")
        self.stages, self._prefixes = _stages(stages, balance)
        self._optimizer, self._scheduler = optimizer, scheduler
        self.loss = loss
        self.adam_prediction = _member(AdamPrediction, adam_prediction, "adam_prediction")
        self.split = _member(Split, split, "split")
        self.batch_norm = _member(NormWay, batch_norm, "batch_norm")
        reduction = _member(LossReduction, loss_reduction, "loss_reduction")
        self.loss_scales = partial(loss_scales, reduction=reduction, loss_weight=loss_weight)
        """Targets of a mini-batch's micro-batches -> what each loss is multiplied with."""
        self.loss_weights = partial(loss_weights, loss_weight=loss_weight)
        """Targets of micro-batches -> what each mean loss counts."""
        self.loss_reduction = reduction
        _check_loss(loss, reduction, loss_weight)
        check_stages(self.stages, self._prefixes)
        self._copies: dict[tuple[int, int], StageCopy] = {}
        self._trained = False

    def __repr__(self) -> str:
        count = sum(parameter.numel() for stage in self.stages for parameter in stage.parameters())
        return f"<Pipeline: {len(self.stages)} stages, {count:,} parameters>"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep the pipeline for one training at a time; raise RefusedError while another one runs, say in another thread."""
        with _CLAIMING:
            if self._trained:
                raise RefusedError(
                    "the pipeline is being trained by another call, which changes the same weights: wait for it, or give each "
                    "its own copy of the stages"
                )
            self._trained = True
        try:
            yield
        finally:
            self._trained = False

    def copy(self, stage: int, replica: int) -> StageCopy:
        """Return a replica of a stage with the stage's current weights and optimizer state; replica 0 is the stage itself."""
        key = stage, replica
        if key not in self._copies:
            module = self.stages[stage] if replica == 0 else deepcopy(self.stages[stage])
            self._copies[key] = StageCopy(module, self._optimizer, self._scheduler)
            self._copies[key].defers_batch_norm = self.batch_norm is NormWay.DEFERRED
        copy = self._copies[key]
        if replica:
            copy.follow(self.copy(stage, 0))
        return copy

    def keys(self, stage: int) -> list[str]:
        """Return the keys, in the state_dict of the whole model, of a stage's trainable parameters in their order."""
        named = self.stages[stage].named_parameters()
        return [self._prefixes[stage] + name for name, parameter in named if parameter.requires_grad]

    def state_dict(self) -> dict[str, Tensor]:
        """Return weights and buffers under the keys of the unpartitioned model: nn.Sequential(*stages), or the one that was cut."""
        pairs = zip(self._prefixes, self.stages, strict=True)
        return {prefix + key: value for prefix, stage in pairs for key, value in stage.state_dict().items()}


class StageCopy:
    """One copy of a stage: a module with an optimizer of its own."""

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: Callable[[list[nn.Parameter]], Optimizer],
        make_scheduler: Callable[[Optimizer], LRScheduler] | None,
    ) -> None:
        self.module = module
        self.home = HOST
        """Where it computes."""
        self.defers_batch_norm = False
        """A mini-batch moves BatchNorm's running statistics, not a micro-batch."""
        self.parameters = tuple(parameter for parameter in module.parameters() if parameter.requires_grad)
        """The module's trainable parameters, each once; the optimizer holds these very objects."""
        self.optimizer = made_optimizer(make_optimizer, list(self.parameters)) if self.parameters else None
        self.scheduler: LRScheduler | None = None
        if make_scheduler is not None and self.optimizer is not None:
            self.scheduler = made_scheduler(make_scheduler, self.optimizer)
        self._predictor: Predictor | None = None
        self._homes = tuple(_Home.find(module, self.parameters))

    def predictor(self, adam: AdamPrediction | None) -> Predictor | None:
        """Return what predicts the weights from the last update, be it one of an earlier run; None if nobody predicts them.

        `adam` is None for a run without predictions: then updates are not watched, and what was known is forgotten.
        """
        if adam is None or self.optimizer is None:
            self._predictor = None
        elif self._predictor is None:
            self._predictor = make_predictor(self.optimizer, self.parameters, adam)
        return self._predictor

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
        """Take over weights, buffers and what optimizer, scheduler and predictor know, of another copy of the same stage."""
        self.module.load_state_dict(other.module.state_dict())
        if self.optimizer is not None and other.optimizer is not None:
            self.optimizer.load_state_dict(deepcopy(other.optimizer.state_dict()))
            self._predictor = None if other._predictor is None else other._predictor.moved(self.optimizer, self.parameters)
        if self.scheduler is not None and other.scheduler is not None:
            self.scheduler.load_state_dict(deepcopy(other.scheduler.state_dict()))

    def bind(self, tensors: Sequence[nn.Parameter]) -> None:
        """Let the module compute with other tensors in place of its trainable parameters, given in their order."""
        for home in self._homes:
            home.put(tensors[home.number])


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


def _stages(stages: object, balance: Sequence[int] | None) -> tuple[tuple[nn.Module, ...], tuple[str, ...]]:
    """Return the stages and what stands before their keys in the state_dict of the whole model."""
    if isinstance(stages, Stages) and balance is None:
        return tuple(stages), stages.prefixes
    if isinstance(stages, nn.Sequential):
        if balance is not None:
            return _cut_sequential(stages, balance)
        if not len(stages):
            raise ArgumentError("the nn.Sequential has no layers: give at least one stage")
        return tuple(stages), tuple(f"{name}." for name, _ in stages.named_children())
    if balance is not None:
        raise ArgumentError("balance cuts an nn.Sequential: give one, or leave balance out")
    single = isinstance(stages, nn.Module) and not isinstance(stages, nn.ModuleList)
    if single or not isinstance(stages, Iterable):
        raise ArgumentError(f"{type(stages).__name__} is neither nn.Sequential nor a list of stages: give a list of modules")
    found = tuple(stages)
    wrong = next((stage for stage in found if not isinstance(stage, nn.Module)), None)
    if not found or wrong is not None:
        raise ArgumentError(f"stages hold {type(wrong).__name__}: give at least one stage, each an nn.Module")
    return found, tuple(f"{number}." for number in range(len(found)))


def _cut_sequential(model: nn.Sequential, balance: Sequence[int]) -> tuple[tuple[nn.Module, ...], tuple[str, ...]]:
    expect(balance, Iterable, "balance", remedy="give a list of the layers of each stage")
    balance = tuple(balance)
    if not balance:
        raise ArgumentError("balance [] makes no stage: give the layers of at least one")
    for count in balance:
        expect(count, Integral, "balance", remedy="give whole numbers of layers")
    if sum(balance) != len(model):
        raise ArgumentError(f"balance sums to {sum(balance)} layers, but the model has {len(model)}")
    if any(count < 1 for count in balance):
        raise ArgumentError(f"balance {list(balance)} leaves a stage without layers: give at least 1 to each")
    bounds = pairwise(accumulate(balance, initial=0))
    return tuple(model[first:last] for first, last in bounds), ("",) * len(balance)


Choice = TypeVar("Choice", bound=StrEnum)


def _member(choices: type[Choice], value: str, name: str) -> Choice:
    if value not in tuple(choices):
        raise ArgumentError(f"{name} {value!r} is unknown: use {' or '.join(choices)}")
    return choices(value)


def _check_loss(loss: Loss, reduction: LossReduction, loss_weight: LossWeight | None) -> None:
    if isinstance(loss, nn.Module) and any(parameter.requires_grad for parameter in loss.parameters()):
        raise RefusedError(
            f"loss {type(loss).__name__} has trainable parameters, which no stage would train: put them in the last stage"
        )
    if reduction is LossReduction.SUM and loss_weight is not None:
        raise ArgumentError('loss_weight weighs means, but loss_reduction is "sum": leave one of the two out')
