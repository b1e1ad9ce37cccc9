"""Which workers train: threads, processes that were started together, or GPUs; and what `auto` chooses.

auto    processes, if several were started together, each with a GPU if the model lies on one; GPUs, if it does; else threads
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from enum import StrEnum

import torch
from torch import nn

from executor.model.pipeline import Pipeline
from executor.workers.cuda import start as cuda
from executor.workers.cuda.team import CudaTeam
from executor.workers.environment import started_together
from executor.workers.team import OneProcess, Team
from schedir.errors import ArgumentError, SchedirWarning
from schedir.ir.graph import TaskGraph

AUTO = "auto"


class WorkersKind(StrEnum):
    """What the devices of a graph are."""

    DISTRIBUTED = "distributed"
    THREADS = "threads"
    CUDA = "cuda"
    CUDA_PARTITIONS = "cuda-partitions"

    @property
    def on_gpus(self) -> bool:
        """They compute on GPUs of this process."""
        return self in {WorkersKind.CUDA, WorkersKind.CUDA_PARTITIONS}


WORKERS = (AUTO, *WorkersKind)
"""What a user may say."""
LOCAL = tuple(kind for kind in WorkersKind if kind is not WorkersKind.DISTRIBUTED)
"""Kinds of workers of one process."""


def choose_workers(name: str, stages: Sequence[nn.Module]) -> WorkersKind:
    """Return the kind of workers for a name; for `auto` the one that fits the stages.

    Raises ArgumentError for an unknown name. Warns if a model on an accelerator will be trained elsewhere.
    """
    if name not in WORKERS:
        raise ArgumentError(f"workers {name!r} is unknown: use {' or '.join(WORKERS)}")
    lies_on = {parameter.device for stage in stages for parameter in stage.parameters()}
    if name == AUTO:
        return _fitting(lies_on)
    _warn_if_moved(WorkersKind(name), lies_on)
    return WorkersKind(name)


def _fitting(lies_on: set[torch.device]) -> WorkersKind:
    # whoever started several processes wants each to have its part; each would train the whole model otherwise
    if started_together():
        return WorkersKind.DISTRIBUTED
    return WorkersKind.CUDA if any(device.type == "cuda" for device in lies_on) else WorkersKind.THREADS


def _warn_if_moved(kind: WorkersKind, lies_on: set[torch.device]) -> None:
    stays = {"cpu", "meta"} | ({"cuda"} if kind is WorkersKind.DISTRIBUTED else set())  # processes compute where the model lies
    # a model on `meta` has no weights anywhere yet, so nothing is taken away from an accelerator
    away = sorted(str(device) for device in lies_on if device.type not in stays)
    if away and not kind.on_gpus:
        warnings.warn(
            f"the model is on {away[0]}, but workers '{kind}' compute on the CPU: it is moved there, and back at the end "
            "(workers='cuda' compute on GPUs)",
            SchedirWarning,
            stacklevel=4,
        )


def machines_workers() -> str:
    """Return the workers for a model that nobody has put anywhere yet: GPUs where there are any, else what `auto` finds."""
    return WorkersKind.CUDA if torch.cuda.is_available() and not started_together() else AUTO


def fitted(graph: TaskGraph, kind: WorkersKind, *, stepwise: bool = False) -> TaskGraph:
    """Return the graph that workers of a kind can run on this machine: on fewer GPUs than devices these take turns.

    `stepwise` if the data come step by step, so that no turn waits for those of later steps. Raises RefusedError if there is no
    GPU for those that need one.
    """
    return cuda.graph_for(graph, kind, stepwise=stepwise) if kind.on_gpus else graph


def make_team(kind: WorkersKind, graph: TaskGraph, pipeline: Pipeline, *, seed: int, timeout_s: float) -> Team:
    """Return who trains a graph that is fitted: the processes that torchrun started, this one's GPUs, or its threads.

    Raises ArgumentError if workers are distributed and nobody has started the right number of processes, RefusedError if there
    is no GPU for those that need one.
    """
    if kind is WorkersKind.DISTRIBUTED:
        from executor.workers.distributed.team import ProcessTeam  # noqa: PLC0415 - some builds of torch have no torch.distributed

        return ProcessTeam(graph, pipeline, seed=seed, timeout_s=timeout_s)
    if kind.on_gpus:
        return CudaTeam(cuda.gpus_for(graph, kind), timeout_s=timeout_s)
    return OneProcess(timeout_s=timeout_s)
