"""Data and loss lie where the stages are that read them: inputs with the first, targets and the loss's buffers with the last."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
from torch import nn

from executor.home import HOST, Home
from executor.model.data import MicroBatch
from executor.model.pipeline import Loss
from executor.workers.base import Workers
from schedir.errors import RefusedError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph

Ends = Sequence[tuple[int, int]]
"""By micro-batch: the device of the first stage's forward, and of the last one's."""


def ends_of(graph: TaskGraph) -> Ends:
    """Return where the forwards of all micro-batches begin and end."""
    return list(zip(_devices(graph, 0), _devices(graph, graph.program.num_stages - 1), strict=True))


def _devices(graph: TaskGraph, stage: int) -> list[int]:
    found = np.zeros(graph.program.total_micro_batches, np.int64)
    compute = slice(0, graph.num_compute_tasks)
    forwards = np.isin(graph.kind[compute], (Kind.FORWARD, Kind.OVERLAPPED)) & (graph.stage[compute] == stage)
    tasks = np.flatnonzero(forwards)
    found[graph.micro_batch[tasks]] = graph.device[tasks]
    devices: list[int] = found.tolist()
    return devices


def placed(parts: Sequence[MicroBatch], ends: Ends, workers: Workers) -> Sequence[MicroBatch]:
    """Return micro-batches whose tensors lie where they are read, as far as this process reads them."""
    return [_placed(part, first, last, workers=workers) for part, (first, last) in zip(parts, ends, strict=True)]


def _placed(part: MicroBatch, first: int, last: int, *, workers: Workers) -> MicroBatch:
    inputs = part.inputs if _is_host(first, workers) else workers.home(first).message(part.inputs)
    target = part.target if _is_host(last, workers) else workers.home(last).value(part.target)
    return part if inputs is part.inputs and target is part.target else replace(part, inputs=inputs, target=target)


def _is_host(device: int, workers: Workers) -> bool:
    return device not in workers.devices or workers.home(device).device.type == "cpu"


def placed_loss(loss: Loss, ends: Ends, workers: Workers) -> Loss:
    """Return a loss whose buffers (weights of classes) lie where the last stage runs; the one that is given stays what it is.

    Raises RefusedError where that is on several GPUs.
    """
    homes: list[Home] = [workers.home(device) for device in sorted({last for _, last in ends}) if device in workers.devices]
    if not isinstance(loss, nn.Module) or not any(True for _ in loss.buffers()) or all(home == HOST for home in homes):
        return loss
    if len(homes) > 1:
        raise RefusedError(
            f"loss {type(loss).__name__} has buffers, but the last stage runs on {len(homes)} devices: give a function that "
            "takes them from the target"
        )
    return deepcopy(loss).to(homes[0].device)
