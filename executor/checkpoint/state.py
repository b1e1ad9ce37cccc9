"""What a training is made of, under the names of the model that was not cut: so it fits another cut and another schedule.

model        weights and buffers by their keys
optimizer    tensors "PARAMETER/STATE" (0.weight/exp_avg), and "PARAMETER/prediction" where weights are predicted
plain        other values of the optimizers' state, options of their groups, schedulers: see `Plain`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from executor.checkpoint.plain_values import Json, from_json, to_json
from executor.model.pipeline import Pipeline
from executor.model.stage_copy import StageCopy
from schedir.errors import FormatError, RefusedError

PREDICTION = "prediction"
"""Stands for the name of a state that no optimizer has."""


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Everything but random numbers and the place in the data."""

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    plain: dict[str, Json] = field(default_factory=dict)
    """`kind`: class of the optimizers; `values`: "PARAMETER/STATE" -> value; `groups`: options and their parameters; `schedulers`:
    one state per stage, null where there is none."""


def read_state(pipeline: Pipeline) -> TrainingState:
    """Return copies of the state of a pipeline that is drained. Raises RefusedError for what a checkpoint cannot hold.

    What optimizers know of tied weights stands under the name of their owner, as the unpartitioned model would have it.
    """
    pipeline.check_ties()
    model = {key: _copied(value, key) for key, value in pipeline.state_dict().items()}
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {"kind": None, "values": {}, "groups": [], "schedulers": []}
    for stage, copy in _stages(pipeline):
        names = _own_names(pipeline, stage, copy)
        for name, value in _optimizer_state(copy, names):
            if isinstance(value, Tensor):
                tensors[name] = _copied(value, name)
            else:
                plain["values"][name] = to_json(value, f"the optimizer of {name.rpartition('/')[0]}")
        plain["groups"] += _groups(copy, names)
        plain["kind"] = plain["kind"] if copy.optimizer is None else type(copy.optimizer).__name__
        scheduler = copy.scheduler
        plain["schedulers"].append(
            None if scheduler is None else to_json(scheduler.state_dict(), f"scheduler {type(scheduler).__name__}")
        )
    return TrainingState(model, tensors, plain)


def write_state(pipeline: Pipeline, state: TrainingState, source: str) -> None:
    """Give a pipeline that is drained a state, that of another cut and schedule perhaps; `source` stands before what is wrong.

    Raises FormatError, before anything is changed, where model or optimizer do not fit.
    """
    _check_model(pipeline.state_dict(), state.model, source)
    _check_optimizer(pipeline, state, source)
    for stage, copy in _stages(pipeline):
        own = zip(copy.module.state_dict(), pipeline.own_keys(stage), strict=True)
        copy.module.load_state_dict({key: state.model[name] for key, name in own})
        copy.take_shared()
        _write_optimizer(copy, _names(pipeline, stage, copy), state)
        _write_scheduler(copy, stage, state.plain["schedulers"])


def _stages(pipeline: Pipeline) -> Iterator[tuple[int, StageCopy]]:
    return ((stage, pipeline.copy(stage, 0)) for stage in range(len(pipeline.stages)))


def _names(pipeline: Pipeline, stage: int, copy: StageCopy) -> dict[int, str]:
    """Return the names of a stage's trainable parameters by their ids; of a tied one that of its owner."""
    return {id(parameter): key for parameter, key in zip(copy.parameters, pipeline.owners_keys(stage), strict=True)}


def _own_names(pipeline: Pipeline, stage: int, copy: StageCopy) -> dict[int, str]:
    """Return the names of a stage's trainable parameters by their ids, without those that another stage owns."""
    foreign = {id(copy.parameters[number]) for number in pipeline.foreign(stage)}
    return {parameter: key for parameter, key in _names(pipeline, stage, copy).items() if parameter not in foreign}


def _copied(value: object, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise RefusedError(f"{name} of the model is a {type(value).__name__}, which a checkpoint cannot hold: make it a tensor")
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


def _check_model(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], source: str) -> None:
    missing, unknown = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}, which the model has not"
        more = len(missing) + len(unknown) - 1
        raise FormatError(
            f"{source} {what}{f' (and {more} more)' if more else ''}: it is of another model, or of one named otherwise"
        )
    for key, tensor in wanted.items():
        if given[key].shape != tensor.shape or given[key].dtype != tensor.dtype:
            found, own = (f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}" for each in (given[key], tensor))
            raise FormatError(f"{source}: {key} is {found}, but {own} in the model: make both the same")


def _check_optimizer(pipeline: Pipeline, state: TrainingState, source: str) -> None:
    options = _options(state)
    for stage, copy in _stages(pipeline):
        if copy.optimizer is None:
            continue
        kind = type(copy.optimizer).__name__
        if kind != state.plain["kind"]:
            raise FormatError(f"{source} is of a training with {state.plain['kind']}, but the optimizer is {kind}: use the same")
        names = _names(pipeline, stage, copy)
        for group in copy.optimizer.param_groups:
            keys = [names[id(parameter)] for parameter in group["params"]]
            unknown = next((key for key in keys if key not in options), None)
            if unknown is not None:
                raise FormatError(f"{source}: {unknown} was not trained there: train the same parameters")
            if any(options[key] != options[keys[0]] for key in keys):
                raise FormatError(f"{source}: parameters of one group of stage {stage} had several there: make the same groups")


def _options(state: TrainingState) -> dict[str, Mapping[str, Json]]:
    return {key: group["options"] for group in state.plain["groups"] for key in group["parameters"]}


def _write_optimizer(copy: StageCopy, names: Mapping[int, str], state: TrainingState) -> None:
    if copy.optimizer is None:
        return
    options, by_parameter = _options(state), _by_parameter(state)
    copy.optimizer.state.clear()
    for group in copy.optimizer.param_groups:
        for name, value in options[names[id(group["params"][0])]].items() if group["params"] else ():
            _set_option(group, name, from_json(value))
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
    values = {name: from_json(value) for name, value in state.plain["values"].items()}
    for name, value in {**{name: tensor.clone() for name, tensor in state.optimizer.items()}, **values}.items():
        parameter, _, kind = name.rpartition("/")
        found.setdefault(parameter, {})[kind] = value
    return found


def _set_option(group: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(group.get(name), Tensor):
        group[name].fill_(value)
    else:
        group[name] = value


def _write_scheduler(copy: StageCopy, stage: int, states: list[Json]) -> None:
    """Give a scheduler the state of its stage, or of any if the cut is another: all have had as many updates."""
    if copy.scheduler is None or copy.optimizer is None:
        return
    known = [state for state in states if state is not None]
    if not known:
        return
    own = states[stage] if stage < len(states) and states[stage] is not None else known[0]
    copy.scheduler.load_state_dict(_with_rates(from_json(own), copy.optimizer.param_groups))


def _with_rates(state: dict[str, Any], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a scheduler's state with the rates of these groups, which hold them too."""
    rates = {"base_lrs": "initial_lr", "_last_lr": "lr"}
    changed = {name: [group[kept] for group in groups] for name, kept in rates.items() if name in state}
    if isinstance(state.get("_schedulers"), list):
        changed["_schedulers"] = [_with_rates(inner, groups) if inner is not None else None for inner in state["_schedulers"]]
    return {**state, **changed}
