"""A model in stages with its loss and optimizers: what `train` needs beside the task graph and the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from enum import StrEnum
from functools import partial
from itertools import accumulate, pairwise
from numbers import Integral
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from executor.model.admission import check_stages
from executor.model.claims import Claim
from executor.model.data import LossReduction, LossWeight, loss_scales, loss_weights
from executor.model.norm_ways import NormWay
from executor.model.predictors import AdamPrediction
from executor.model.split_ways import Split
from executor.model.stage_copy import StageCopy
from executor.model.stages import Stages
from executor.model.ties import find_ties, foreign_parameters
from schedir.errors import ArgumentError, RefusedError, RunError
from schedir.expect import expect, expect_function

Loss = Callable[[Any, Any], Tensor]
"""(output, target) of a micro-batch -> its mean loss, a tensor with one element."""


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
        expect_function(loss, "loss", ("output", "target"))
        expect_function(optimizer, "optimizer", ("parameters",))
        for name, function, argument in (("scheduler", scheduler, "optimizer"), ("loss_weight", loss_weight, "target")):
            if function is not None:
                expect_function(function, name, (argument,))
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
        self.skip_connections = stages.skips if isinstance(stages, Stages) else ()
        """Outputs that go straight to a later stage, in the order of their ends."""
        self.shared = find_ties(self.stages)
        """Parameters that several stages hold."""
        self._copies: dict[tuple[int, int], StageCopy] = {}

    def __repr__(self) -> str:
        count = sum(parameter.numel() for stage in self.stages for parameter in stage.parameters())
        return f"<Pipeline: {len(self.stages)} stages, {count:,} parameters>"

    def claim(self, *, by: str) -> Claim:
        """Keep the stages for one training, until it releases them; raise RefusedError while another one has a part of them.

        `by` tells others who has them, and what to do.
        """
        return Claim(self.stages, self._prefixes, by=by)

    @property
    def ties(self) -> tuple[tuple[int, ...], ...]:
        """Stages that hold the same trainable parameters: what `compile_program` has to know of them."""
        return tuple(tie.stages for tie in self.shared)

    @property
    def skips(self) -> tuple[tuple[int, int], ...]:
        """Ends (source, target) of the skip connections: what `compile_program` has to know of them."""
        return tuple((skip.source, skip.target) for skip in self.skip_connections)

    @property
    def trainable(self) -> bool:
        """Some stage has parameters to train."""
        return any(parameter.requires_grad for stage in self.stages for parameter in stage.parameters())

    def check_ties(self) -> None:
        """Raise RunError if copies of tied weights have drifted apart, which only optimizers that differ can have done."""
        for (stage, replica), copy in self._copies.items():
            number = None if replica else copy.drifted()
            if number is not None:
                own, owners = self.keys(stage)[number], self.owners_keys(stage)[number]
                raise RunError(
                    f"{own} has other values than {owners}, which is the same parameter: let all stages' optimizers treat it alike"
                )

    def copy(self, stage: int, replica: int) -> StageCopy:
        """Return a replica of a stage with the stage's current weights and optimizer state; replica 0 is the stage itself."""
        key = stage, replica
        if key not in self._copies:
            module = self.stages[stage] if replica == 0 else _copied(self.stages[stage], stage)
            foreign = foreign_parameters(self.stages, stage) if replica == 0 else ()
            self._copies[key] = StageCopy(module, self._optimizer, self._scheduler, foreign=foreign)
            self._copies[key].defers_batch_norm = self.batch_norm is NormWay.DEFERRED
        copy = self._copies[key]
        if replica:
            copy.follow(self.copy(stage, 0))
        return copy

    def keys(self, stage: int) -> list[str]:
        """Return the keys, in the state_dict of the whole model, of a stage's trainable parameters in their order."""
        named = self.stages[stage].named_parameters()
        return [self._prefixes[stage] + name for name, parameter in named if parameter.requires_grad]

    def owners_keys(self, stage: int) -> list[str]:
        """Return the keys of a stage's trainable parameters, of a tied one that of the stage that owns it."""
        keys = self.keys(stage)
        for number, (owner, owners_number) in self.foreign(stage).items():
            keys[number] = self.keys(owner)[owners_number]
        return keys

    def foreign(self, stage: int) -> dict[int, tuple[int, int]]:
        """Return the stage's trainable parameters that a lower stage owns: number -> (owner, number there)."""
        return {
            number: (owner, tie.numbers_of(owner)[parameter])
            for tie in self.shared
            for parameter, number in enumerate(tie.numbers_of(stage) if stage in tie.stages else ())
            for owner in tie.holders(parameter)[:1]
            if number >= 0 and owner != stage
        }

    def own_keys(self, stage: int) -> list[str]:
        """Return the keys of a stage's own state_dict in that of the whole model, in their order."""
        return [self._prefixes[stage] + key for key in self.stages[stage].state_dict()]

    def state_dict(self) -> dict[str, Tensor]:
        """Return weights and buffers under the keys of the unpartitioned model: nn.Sequential(*stages), or the one that was cut."""
        pairs = zip(self._prefixes, self.stages, strict=True)
        return {prefix + key: value for prefix, stage in pairs for key, value in stage.state_dict().items()}


def _copied(module: nn.Module, stage: int) -> nn.Module:
    """Return a copy of a stage; raise RefusedError where torch cannot copy it: old weight_norm keeps a tensor it computed."""
    try:
        return deepcopy(module)
    except (RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise RefusedError(
            f"stage {stage} cannot be copied for a replica ({reason}): take nn.utils.parametrizations.weight_norm for "
            "nn.utils.weight_norm, or a schedule without replicas"
        ) from error


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
    wrong = [type(stage).__name__ for stage in found if not isinstance(stage, nn.Module)]
    if not found or wrong:
        raise ArgumentError(f"stages hold {wrong[0] if wrong else 'nothing'}: give at least one stage, each an nn.Module")
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
