"""A recipe: everything that training needs of a user, under one name that a command can be given.

    schedir compare gpipe xpipe --model my_recipe.py:recipe
    schedir profile schedir_package.module:function

The function takes no arguments and returns a Recipe; it is called anew for every run, so that every run starts from the
same weights if the function seeds them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from executor.model.cutting.cut_blocks import num_blocks, runs_blocks
from executor.model.cutting.split import split
from executor.model.data import LossReduction, LossWeight
from executor.model.norm_ways import NormWay
from executor.model.pipeline import Loss
from executor.model.predictors import AdamPrediction
from executor.model.stages import Stages
from executor.trainer.evaluating.judging import MetricFunction, check_metrics
from executor.trainer.updating.clipping import Clip
from executor.trainer.updating.loss_scaling import LossScaling
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect, expect_function
from schedir.interop.user_code import load_function
from schedir.ir.shape import check_count

MiniBatch = tuple[Any, Any]
"""(input, target), each a tensor or a value made of tensors: a tuple, a dict, …."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Recipe:
    """What to train, how, and on what. Give either `stages` or `model`."""

    stages: Sequence[nn.Module] | None = None
    """The model, cut already: stage k's output is stage k + 1's input."""
    model: nn.Module | None = None
    """The model, to be cut between its children: an nn.Sequential, or between its blocks: a model of Hugging Face."""
    loss: Loss
    """(output of the last stage, target) -> scalar, the mean over the samples of a micro-batch."""
    optimizer: Callable[[list[nn.Parameter]], Optimizer]
    """Makes the optimizer of one stage's parameters."""
    data: Callable[[int], Iterable[MiniBatch]]
    """Gives for a seed the (input, target) mini-batches, samples along dim 0; they may be endless. Training calls it anew for
    every epoch, with another seed."""
    epoch_size: int | None = None
    """Mini-batches of an epoch, for data that are endless; as far as the data go if not given."""
    validation: Callable[[int], Iterable[MiniBatch]] | None = None
    """Gives for a seed what is held out; it is evaluated before training, after every epoch and at the end."""
    metrics: Mapping[str, MetricFunction] = field(default_factory=dict)
    """What is evaluated beside the loss: (output, target) -> the mean over the samples."""
    lr_scheduler: Callable[[Optimizer], LRScheduler] | None = None
    """Makes the schedule of the learning rate of one stage's optimizer; it is stepped after every update."""
    loss_weight: LossWeight | None = None
    """Of a micro-batch's target: what its mean loss counts, say its valid tokens; samples if not given."""
    loss_reduction: str = LossReduction.MEAN
    """Whether losses of micro-batches are weighed (mean) or added (sum)."""
    adam_prediction: str = AdamPrediction.BIAS_CORRECTED
    """How weights are predicted where the optimizer is Adam: bias-corrected, or literal as the paper prints it."""
    clip: Clip | float | None = None
    """Largest norm of the gradients over the model, or a Clip, say per stage."""
    autocast: torch.dtype | None = None
    """A type to compute in, as torch.bfloat16."""
    loss_scaling: LossScaling | float | str | None = None
    """With torch.float16: dynamic, a number that never changes, or a LossScaling."""
    batch_norm: str = NormWay.PLAIN
    """What moves BatchNorm's running statistics: every micro-batch (plain), or a mini-batch, once (deferred)."""
    name: str = "model"
    """What tables and files call it."""
    about: str = ""
    """One sentence on the data, shown before training."""

    def __post_init__(self) -> None:
        if (self.stages is None) == (self.model is None):
            given = "neither stages nor model" if self.stages is None else "both stages and model"
            raise ArgumentError(f"recipe {self.name} has {given}: give one of them")
        if self.stages is not None:
            expect(self.stages, (Sequence, nn.Sequential, nn.ModuleList), "stages", remedy="give a list of nn.Modules")
            if not len(self.stages):
                raise ArgumentError(f"recipe {self.name} has no stages: give at least one nn.Module")
        if self.model is not None and not (isinstance(self.model, nn.Sequential) or runs_blocks(self.model)):
            raise RefusedError(
                f"recipe {self.name}: {type(self.model).__name__} is neither nn.Sequential nor a model of Hugging Face that runs "
                "blocks: give stages=[...], a list of nn.Modules"
            )
        if isinstance(self.model, nn.Sequential) and not len(self.model):
            raise ArgumentError(f"recipe {self.name} has a model without layers: give an nn.Sequential of at least one")

        self._check_functions()

    def _check_functions(self) -> None:
        """Raise ArgumentError here, where the user's line is, for what a training could not call."""
        expect_function(self.loss, "loss", ("output", "target"))
        expect_function(self.optimizer, "optimizer", ("parameters",))
        expect_function(self.data, "data", ("seed",))
        optional = (("validation", "seed"), ("lr_scheduler", "optimizer"), ("loss_weight", "target"))
        for name, argument in optional:
            if getattr(self, name) is not None:
                expect_function(getattr(self, name), name, (argument,))
        check_metrics(self.metrics)
        if self.epoch_size is not None:
            check_count("epoch_size", self.epoch_size)

    def __repr__(self) -> str:
        return f"<Recipe {self.name}: {self.about or 'no word about its data'}>"

    @property
    def headline(self) -> str:
        """The name, and what the data are where that is said: how commands begin."""
        return f"{self.name}: {self.about}" if self.about else self.name

    @property
    def most_stages(self) -> int:
        """As how many stages the model can be had at most."""
        if self.stages is not None:
            return len(self.stages)
        assert self.model is not None
        return len(self.model) if isinstance(self.model, nn.Sequential) else num_blocks(self.model)

    def cut(self, num_stages: int | None = None, *, at: Sequence[str] | None = None) -> tuple[nn.Module, ...]:
        """Return the model as `num_stages` stages (None: as given; a `model` as one stage).

        A `model` is cut so that the stages have about equally many parameters, or where the modules `at`
        begin. Raises ArgumentError where that many stages cannot be had.
        """
        if self.stages is not None:
            if num_stages not in {None, len(self.stages)}:
                raise ArgumentError(
                    f"recipe {self.name} is cut into {len(self.stages)} stages, but {num_stages} are asked for: "
                    "give it as an nn.Sequential model instead, or ask for as many"
                )
            return self.stages if isinstance(self.stages, Stages) else tuple(self.stages)
        assert self.model is not None
        if at is not None:
            return split(self.model, num_stages, at=at)
        return split(self.model, 1 if num_stages is None else num_stages)


def load_recipe(place: str) -> Recipe:
    """Return the recipe that a function makes: `package.module:function` or `path/file.py:function`.

    Modules are looked for in the working directory too. Raises in one line ArgumentError if there is no such module or function,
    if the function needs arguments, or if it returns something else, and FormatError for a file that does not load. What the
    function itself raises comes as it is.
    """
    function = load_function(place)
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise ArgumentError(f"recipe {place!r} needs arguments ({error}): give them default values") from None
    try:
        recipe = function()
    except SystemExit as error:
        raise ArgumentError(f"recipe {place!r} ends the program (SystemExit: {error}): leave sys.exit out of it") from error
    if inspect.iscoroutine(recipe):
        recipe.close()  # or Python would warn that nobody has awaited it
    if not isinstance(recipe, Recipe):
        raise ArgumentError(f"recipe {place!r} returned {type(recipe).__name__}: return an executor.Recipe")
    return recipe
