"""The stages' state goes to every process at the end of a run: any of them can then evaluate, save, or train another graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only

from executor.model.pipeline import Pipeline
from executor.model.predictors import AdamPrediction
from executor.model.stage_copy import StageCopy
from schedir.ir.graph import TaskGraph

State = dict[str, Any]
"""State of one stage's module, optimizer and scheduler, and what predictions of its weights remember."""


def give_state(graph: TaskGraph, pipeline: Pipeline, *, number: int) -> dict[int, State]:
    """Return the state of the stages that process `number` trains, in the host's memory.

    Of a replicated stage, if it has the first replica.
    """
    return {
        stage: tree_map_only(Tensor, Tensor.cpu, _state(pipeline.copy(stage, 0)))
        for stage, hosts in enumerate(graph.stage_devices())
        if hosts[0] == number
    }


def take_state(graph: TaskGraph, pipeline: Pipeline, states: dict[int, State], *, number: int) -> None:
    """Take over the state of all stages that another process trains."""
    for stage, hosts in enumerate(graph.stage_devices()):
        if hosts[0] != number:
            _load(pipeline.copy(stage, 0), states[stage], pipeline.adam_prediction)


def _state(copy: StageCopy) -> State:
    state: State = {"module": copy.module.state_dict()}
    if copy.optimizer is not None:
        state["optimizer"] = copy.optimizer.state_dict()
    if copy.scheduler is not None:
        state["scheduler"] = copy.scheduler.state_dict()
    prediction = copy.prediction_state()
    if any(tensor is not None for tensor in prediction):
        state["prediction"] = prediction
    return state


def _load(copy: StageCopy, state: State, adam: AdamPrediction) -> None:
    copy.module.load_state_dict(state["module"])
    copy.take_shared()
    if copy.optimizer is not None:
        copy.optimizer.load_state_dict(state["optimizer"])
    if copy.scheduler is not None:
        copy.scheduler.load_state_dict(state["scheduler"])
    if "prediction" in state:
        copy.predictor(adam)
        kept = zip(state["prediction"], copy.parameters, strict=True)
        copy.load_prediction_state([None if tensor is None else tensor.to(beside.device) for tensor, beside in kept])
