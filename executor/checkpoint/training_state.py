"""What a training is made of, under the names of the model that was not cut: so it fits another cut and another schedule.

model        weights and buffers by their keys
optimizer    tensors "PARAMETER/STATE" (0.weight/exp_avg), and "PARAMETER/prediction" where weights are predicted
plain        other values of the optimizers' state, options of their groups, schedulers: JSON in checkpoint.json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from executor.checkpoint.plain_values import Json, from_json
from executor.model.pipeline import Pipeline
from executor.model.stage_copy import StageCopy
from schedir.errors import FormatError

PREDICTION = "prediction"
"""Stands for the name of a state that no optimizer has."""


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters of one group of an optimizer."""

    parameters: tuple[str, ...]
    options: Mapping[str, Any]
    """Learning rate and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Everything but random numbers and the place in the data."""

    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    optimizer_kind: str | None
    """Class of the optimizers; None if no stage has one."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """"PARAMETER/STATE" -> a value that is no tensor."""
    groups: tuple[ParameterGroup, ...] = ()
    schedulers: tuple[Any, ...] = ()
    """One state per stage, None where there is none."""
    scheduler_kinds: tuple[str | None, ...] = ()
    """Their classes; empty in checkpoints that are too old to say."""

    @classmethod
    def of(cls, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], plain: Json, *, source: str) -> TrainingState:
        """Return what a checkpoint holds, `plain` from its manifest; raise FormatError, `source` before it, for what is none."""
        try:
            return cls(
                model=model,
                optimizer=optimizer,
                optimizer_kind=_text(plain["kind"]),
                values={str(name): from_json(value) for name, value in plain["values"].items()},
                groups=tuple(_group(group) for group in plain["groups"]),
                schedulers=tuple(_scheduler(state) for state in plain["schedulers"]),
                scheduler_kinds=tuple(_text(kind) for kind in plain.get("scheduler_kinds", ())),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f'{source}: "optimizer" does not say what a checkpoint has to ({type(error).__name__}: {error}): take '
                "another checkpoint"
            ) from error


def _text(value: Json) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no name of a class")
    return value


def _group(plain: Json) -> ParameterGroup:
    options = {str(name): from_json(value) for name, value in plain["options"].items()}
    return ParameterGroup(tuple(str(key) for key in plain["parameters"]), options)


def _scheduler(plain: Json) -> dict[str, Any] | None:
    state = from_json(plain)
    if state is not None and not isinstance(state, dict):
        raise TypeError(f"{state!r:.40} is no state of a scheduler")
    return state


def stage_copies(pipeline: Pipeline) -> Iterator[tuple[int, StageCopy]]:
    """Yield the copies that stand for their stages."""
    return ((stage, pipeline.copy(stage, 0)) for stage in range(len(pipeline.stages)))


def names_of(pipeline: Pipeline, stage: int, copy: StageCopy) -> dict[int, str]:
    """Return the names of a stage's trainable parameters by their ids; of a tied one that of its owner."""
    return {id(parameter): key for parameter, key in zip(copy.parameters, pipeline.owners_keys(stage), strict=True)}
