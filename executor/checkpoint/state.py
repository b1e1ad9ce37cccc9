"""Take the state of a training down, and give it to another: whole, or, where that other cannot have it, not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from executor.checkpoint.fitting import check_fit, scheduler_kind, scheduler_place
from executor.checkpoint.group_lists import group_homes, with_group_lists
from executor.checkpoint.plain_values import Json, to_json
from executor.checkpoint.training_state import PREDICTION, TrainingState, names_of, stage_copies
from executor.model.pipeline import Pipeline
from executor.model.stage_copy import StageCopy
from schedir.errors import FormatError, RefusedError
from schedir.expect import kind_of


def read_state(pipeline: Pipeline) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Json]]:
    """Return copies of the state of a drained pipeline: its model, its optimizers' tensors, and the rest for `TrainingState.of`.

    Raises RefusedError for what a checkpoint cannot hold. What optimizers know of tied weights stands under the name of their
    owner, as the unpartitioned model would have it.
    """
    pipeline.check_ties()
    model = {key: _copied(value, key) for key, value in pipeline.state_dict().items()}
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {"kind": None, "values": {}, "groups": [], "schedulers": [], "scheduler_kinds": []}
    for stage, copy in stage_copies(pipeline):
        names = _own_names(pipeline, stage, copy)
        for name, value in _optimizer_state(copy, names):
            if isinstance(value, Tensor):
                tensors[name] = _copied(value, name)
            else:
                plain["values"][name] = to_json(value, f"the optimizer of {name.rpartition('/')[0]}")
        plain["groups"] += _groups(copy, names)
        plain["kind"] = plain["kind"] if copy.optimizer is None else type(copy.optimizer).__name__
        kind = None if copy.scheduler is None else scheduler_kind(copy.scheduler)
        plain["scheduler_kinds"].append(kind)
        plain["schedulers"].append(
            None if copy.scheduler is None else to_json(copy.scheduler.state_dict(), f"the lr_scheduler {kind}")
        )
    return model, tensors, plain


def write_state(pipeline: Pipeline, state: TrainingState, source: str) -> None:
    """Give a pipeline that is drained a state, that of another cut and schedule perhaps; `source` stands before what is wrong.

    Raises FormatError, with nothing changed, where model, optimizer or scheduler do not fit.
    """
    check_fit(pipeline, state, source)
    # first what runs code of others, since only that may still fail
    with _schedulers_kept(pipeline):
        for stage, copy in stage_copies(pipeline):
            _write_scheduler(copy, stage, names_of(pipeline, stage, copy), state=state, source=source)
    for stage, copy in stage_copies(pipeline):
        own = zip(copy.module.state_dict(), pipeline.own_keys(stage), strict=True)
        copy.module.load_state_dict({key: state.model[name] for key, name in own})
        copy.take_shared()
        _write_optimizer(copy, names_of(pipeline, stage, copy), state)


def _own_names(pipeline: Pipeline, stage: int, copy: StageCopy) -> dict[int, str]:
    """Return the names of a stage's trainable parameters by their ids, without those that another stage owns."""
    foreign = {id(copy.parameters[number]) for number in pipeline.foreign(stage)}
    return {parameter: key for parameter, key in names_of(pipeline, stage, copy).items() if parameter not in foreign}


def _copied(value: object, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise RefusedError(f"{name} of the model is {kind_of(value)}, which a checkpoint cannot hold: make it a tensor")
    dense = value.detach().to_dense() if value.is_sparse else value.detach()
    return dense.cpu().clone(memory_format=torch.contiguous_format)


def _optimizer_state(copy: StageCopy, names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    if copy.optimizer is None:
        return
    for parameter, found in copy.optimizer.state.items():
        for name, value in found.items() if id(parameter) in names else ():
            yield f"{names[id(parameter)]}/{name}", value
    for parameter, remembered in zip(copy.parameters, copy.prediction_state(), strict=True):
        if remembered is not None and id(parameter) in names:
            yield f"{names[id(parameter)]}/{PREDICTION}", remembered


def _groups(copy: StageCopy, names: Mapping[int, str]) -> Iterator[Json]:
    for group in copy.optimizer.param_groups if copy.optimizer is not None else ():
        options = {
            name: to_json(value.item() if isinstance(value, Tensor) else value, f"optimizer option {name}")
            for name, value in group.items()
            if name != "params"
        }
        own = [names[id(parameter)] for parameter in group["params"] if id(parameter) in names]
        yield {"parameters": own, "options": options}


# ---------------------------------------------------------------- and back


def _options(state: TrainingState) -> dict[str, Mapping[str, Any]]:
    return {key: group.options for group in state.groups for key in group.parameters}


def _write_optimizer(copy: StageCopy, names: Mapping[int, str], state: TrainingState) -> None:
    if copy.optimizer is None:
        return
    options, by_parameter = _options(state), _by_parameter(state)
    copy.optimizer.state.clear()
    for group in copy.optimizer.param_groups:
        for name, value in options[names[id(group["params"][0])]].items() if group["params"] else ():
            _set_option(group, name, value)
        for parameter in group["params"]:
            known = by_parameter.get(names[id(parameter)], {})
            found = {name: _beside(parameter, (name, value), group) for name, value in known.items() if name != PREDICTION}
            if found:
                copy.optimizer.state[parameter] = found
    remembered = [(parameter, by_parameter.get(names[id(parameter)], {}).get(PREDICTION)) for parameter in copy.parameters]
    copy.load_prediction_state([None if kept is None else kept.to(parameter.device) for parameter, kept in remembered])


def _beside(parameter: Tensor, state: tuple[str, Any], group: Mapping[str, Any]) -> Any:
    """Return a state where torch's optimizers keep it: beside its parameter, but for the number of steps, which the host reads."""
    name, value = state
    on_host = name == "step" and not (group.get("capturable") or group.get("fused"))
    return value.to(parameter.device) if isinstance(value, Tensor) and not on_host else value


def _by_parameter(state: TrainingState) -> dict[str, dict[str, Any]]:
    """Return the states of every parameter, in tensors of their own."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in {**{name: tensor.clone() for name, tensor in state.optimizer.items()}, **state.values}.items():
        parameter, _, kind = name.rpartition("/")
        found.setdefault(parameter, {})[kind] = value
    return found


def _set_option(group: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(group.get(name), Tensor):
        group[name].fill_(value)
    else:
        group[name] = value


@contextmanager
def _schedulers_kept(pipeline: Pipeline) -> Iterator[None]:
    """Give all schedulers back what they knew if anything is raised inside."""
    schedulers = [each for _, copy in stage_copies(pipeline) if copy.scheduler is not None for each in _nested(copy.scheduler)]
    before = [(each, dict(each.__dict__)) for each in schedulers]
    try:
        yield
    except BaseException:
        for each, known in before:
            each.__dict__.clear()
            each.__dict__.update(known)
        raise


def _nested(scheduler: LRScheduler) -> Iterator[LRScheduler]:
    yield scheduler
    for inner in getattr(scheduler, "_schedulers", None) or ():
        yield from _nested(inner)


def _write_scheduler(copy: StageCopy, stage: int, names: Mapping[int, str], *, state: TrainingState, source: str) -> None:
    place = scheduler_place(state.schedulers, stage)
    if copy.scheduler is None or copy.optimizer is None or place is None:
        return
    options, homes = _options(state), group_homes(state)
    keys = [names[id(group["params"][0])] if group["params"] else None for group in copy.optimizer.param_groups]
    # the optimizer has its own rates still, and gets these behind
    groups = [
        {**group, **(options[key] if key is not None else {})} for group, key in zip(copy.optimizer.param_groups, keys, strict=True)
    ]
    try:
        saved = with_group_lists(
            {number: known for number, known in enumerate(state.schedulers) if known is not None},
            place,
            own=copy.scheduler.state_dict(),
            homes=[None if key is None else homes[key] for key in keys] if homes else None,
            num_groups=len(groups),
        )
        # a copy: stages of another cut take the same state, and keep what they take
        copy.scheduler.load_state_dict(deepcopy(_with_rates(saved, groups)))
    except Exception as error:
        kind = scheduler_kind(copy.scheduler)
        raise FormatError(
            f"{source}: the lr_scheduler {kind} does not take its state ({type(error).__name__}: {error}): use the one that "
            "was saved"
        ) from error


def _with_rates(state: Mapping[str, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a scheduler's state with the rates of these groups, which hold them too."""
    rates = {"base_lrs": "initial_lr", "_last_lr": "lr"}
    changed = {name: [group[kept] for group in groups] for name, kept in rates.items() if name in state}
    if isinstance(state.get("_schedulers"), list):
        changed["_schedulers"] = [_with_rates(inner, groups) if inner is not None else None for inner in state["_schedulers"]]
    return {**state, **changed}
