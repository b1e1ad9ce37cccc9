"""Whether a checkpoint fits a training: asked of all its parts before anything of that training is replaced.

    model        the same names, shapes and types
    optimizer    the same class, the same trained parameters, groups that do not mix what was apart, states of their shapes
    scheduler    the same class, those inside it too; none where there was none

A checkpoint's sums hold, so what does not fit is another training's, or a file that somebody has changed on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from executor.checkpoint.plain_values import Json
from executor.checkpoint.training_state import PREDICTION, TrainingState, names_of, stage_copies
from executor.model.pipeline import Pipeline
from executor.model.stage_copy import StageCopy
from schedir.errors import FormatError

LIKE_PARAMETERS = frozenset(
    {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "grad_avg", "acc_delta", "sum"}
)
"""States of torch's optimizers that have the shape of their parameter; those of others may have any."""


def check_fit(pipeline: Pipeline, state: TrainingState, source: str) -> None:
    """Raise FormatError, `source` before what is wrong, where a state cannot be given to a pipeline."""
    _check_model(pipeline.state_dict(), state.model, source)
    for stage, copy in stage_copies(pipeline):
        if copy.optimizer is not None:
            _check_optimizer(copy, names_of(pipeline, stage, copy), state, source=source)
            _check_scheduler(copy.scheduler, stage, state, source=source)


def scheduler_kind(scheduler: LRScheduler) -> str:
    """Return the class of a scheduler, with those that it is made of: SequentialLR(LinearLR, StepLR)."""
    inner = getattr(scheduler, "_schedulers", None)
    name = type(scheduler).__name__
    return f"{name}({', '.join(map(scheduler_kind, inner))})" if isinstance(inner, list | tuple) else name


def scheduler_place(states: Sequence[Json], stage: int) -> int | None:
    """Return whose scheduler state a stage takes: its own, or any if the cut is another, since all have had as many updates."""
    known = [place for place, state in enumerate(states) if state is not None]
    return stage if stage in known else min(known, default=None)


def _check_model(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], source: str) -> None:
    missing, unknown = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}, which the model does not have"
        more = len(missing) + len(unknown) - 1
        raise FormatError(
            f"{source} {what}{f' (and {more} more)' if more else ''}: it is of another model, or of one named otherwise"
        )
    for key, tensor in wanted.items():
        if given[key].shape != tensor.shape or given[key].dtype != tensor.dtype:
            found, own = (f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}" for each in (given[key], tensor))
            raise FormatError(f"{source}: {key} is {found}, but {own} in the model: make both the same")


def _check_optimizer(copy: StageCopy, names: Mapping[int, str], state: TrainingState, *, source: str) -> None:
    kind = type(copy.optimizer).__name__
    if kind != state.optimizer_kind:
        raise FormatError(f"{source} is of a training with {state.optimizer_kind}, but the optimizer is {kind}: use the same")
    assert copy.optimizer is not None
    homes = {key: number for number, group in enumerate(state.groups) for key in group.parameters}
    taken: dict[int, str] = {}
    for group in copy.optimizer.param_groups:
        keys = [names[id(parameter)] for parameter in group["params"]]
        unknown = next((key for key in keys if key not in homes), None)
        if unknown is not None:
            raise FormatError(f"{source}: {unknown} was not trained there: train the same parameters")
        odd = next((key for key in keys if state.groups[homes[key]].options != state.groups[homes[keys[0]]].options), None)
        if odd is not None:
            raise FormatError(
                f"{source}: {keys[0]} and {odd} had other options of {kind} there, but are one group here: make the same groups"
            )
        # what was one group would get one rate for both of those that are here, whatever they are to have
        mixed = next((key for key in keys if homes[key] in taken), None)
        if mixed is not None:
            raise FormatError(
                f"{source}: {taken[homes[mixed]]} and {mixed} were one group of {kind} there, but are two here: make the same "
                "groups"
            )
        taken |= {homes[key]: key for key in keys}
        for parameter, key in zip(group["params"], keys, strict=True):
            _check_shapes(parameter, key, state, source=source)


def _check_shapes(parameter: Tensor, key: str, state: TrainingState, *, source: str) -> None:
    """Raise FormatError for a state that its optimizer, or a prediction, would fail on at its next update."""
    for name in (*LIKE_PARAMETERS, PREDICTION):
        value = state.optimizer.get(f"{key}/{name}")
        # a prediction that needs nothing but the optimizer's own states remembers an empty tensor
        fits = value is None or value.shape == parameter.shape or (name == PREDICTION and not value.numel())
        if not fits and value is not None:
            raise FormatError(
                f"{source}: {key}/{name} is {list(value.shape)}, but its parameter is {list(parameter.shape)}: take another "
                "checkpoint"
            )


def _check_scheduler(scheduler: LRScheduler | None, stage: int, state: TrainingState, *, source: str) -> None:
    place = scheduler_place(state.schedulers, stage)
    own = "without lr_scheduler" if scheduler is None else f"with {scheduler_kind(scheduler)}"
    saved = _saved_kind(state, place)
    if (scheduler is None) != (place is None) or (scheduler is not None and saved not in {None, scheduler_kind(scheduler)}):
        there = "without lr_scheduler" if place is None else f"with {saved or 'one'}"
        raise FormatError(f"{source} is of a training {there}, but this one is {own}: use the same lr_scheduler")
    if scheduler is not None and place is not None and saved is None:
        _check_keys(scheduler, state.schedulers[place], source)


def _saved_kind(state: TrainingState, place: int | None) -> str | None:
    """Return the class of the scheduler that was saved; None if there was none, or if the checkpoint is too old to say."""
    return None if place is None or place >= len(state.scheduler_kinds) else state.scheduler_kinds[place]


def _check_keys(scheduler: LRScheduler, saved: Mapping[str, Any], source: str) -> None:
    """Raise FormatError where the state of a class that nobody knows has other values than this class keeps."""
    differing = sorted(set(_public(saved)) ^ set(_public(scheduler.state_dict())))
    if differing:
        kind = scheduler_kind(scheduler)
        raise FormatError(f"{source} is of another lr_scheduler than {kind} ({', '.join(differing)}): use the one that was saved")


def _public(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names that a class has in every version of torch."""
    return (name for name in state if not name.startswith("_") and name != "verbose")
