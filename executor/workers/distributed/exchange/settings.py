"""What must be the same in all processes of a run, before its first task: they build it apart, each by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum

import numpy as np

from executor.model.layer_settings import LayerSettings
from executor.model.pipeline import Pipeline
from executor.run.checksums import tensor_checksum
from executor.workers.distributed.meeting.start import Participant
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph

TELLS_NOTHING = frozenset({"topology", "name", "origin"})
"""Fields of a graph and its program that follow from the others, or only say where it came from."""


def setting_of(graph: TaskGraph, pipeline: Pipeline, seed: int) -> str:
    """Return everything that must be the same in all processes, as text."""
    found: dict[str, object] = {
        "a task graph": digest(graph),
        "a seed": seed,
        "a number of stages": len(pipeline.stages),
        "a model on a GPU": any(parameter.is_cuda for stage in pipeline.stages for parameter in stage.parameters()),
        "ways to count losses and to split backwards, to predict or to normalize": [
            str(way) for way in (pipeline.loss_reduction, pipeline.split, pipeline.adam_prediction, pipeline.batch_norm)
        ],
    }
    # what classes declare only: other values may be a process's own, its number say
    for number, stage in enumerate(pipeline.stages):
        found[f"modes (train, eval) and settings of layers in stage {number}"] = repr(LayerSettings(stage, fixed=True).now())
    for number, stage in enumerate(pipeline.stages):
        total = 0
        for tensor in stage.state_dict().values():
            total = tensor_checksum(tensor, total)
        found[f"weights of stage {number}"] = total
    return json.dumps(found)


def digest(graph: TaskGraph) -> str:
    """Return text that two graphs share only if they say the same of every task, of what it waits for and how it was lowered."""
    found = hashlib.sha256()
    for piece in _pieces(graph):
        found.update(piece)
    return found.hexdigest()


def _pieces(value: object) -> list[bytes]:
    """Return all that a value says, field by field: a graph that gets another field is told apart by it, too.

    Raises TypeError for values of a type whose text may differ between processes, such as one with an address in it.
    """
    if isinstance(value, np.ndarray):
        return [f"{value.dtype} {value.shape}".encode(), np.ascontiguousarray(value).tobytes()]
    if is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in fields(value) if field.name not in TELLS_NOTHING]
        return [piece for name, part in parts for piece in (name.encode(), *_pieces(part))]
    if isinstance(value, tuple):
        return [f"{len(value)}".encode(), *(piece for part in value for piece in _pieces(part))]
    if value is not None and not isinstance(value, (int, float, str, Enum, np.generic)):
        raise TypeError(f"a graph holds a {type(value).__name__}, of which processes cannot tell if it is the same: say how here")
    return [repr(value).encode()]


def check_settings(members: Sequence[Participant]) -> None:
    """Raise ArgumentError if one process has built something else than process 0."""
    first = json.loads(members[0].setting)
    for member in members[1:]:
        own = json.loads(member.setting)
        other = next((name for name in first if own.get(name) != first[name]), None)
        if other is not None:
            raise ArgumentError(
                f"process {member.number} has {other} that process 0 does not have: build the same in every process (weights: call "
                "torch.manual_seed before the model is made, or load one checkpoint)"
            )
