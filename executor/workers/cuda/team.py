"""One process with a GPU for every device of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from executor.model.data import MicroBatch
from executor.model.pipeline import Pipeline
from executor.run.clock import Recorder
from executor.stage.feed import Feed
from executor.workers.base import Workers
from executor.workers.cuda.clock import CudaRecorder
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.workers import CudaWorkers
from executor.workers.team import Results
from schedir.errors import RefusedError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph


class CudaTeam:
    """All devices are GPUs of this process, or shares of one."""

    def __init__(self, gpus: Sequence[Gpu], *, timeout_s: float) -> None:
        self._gpus, self._timeout_s = tuple(gpus), timeout_s
        self._recorder: CudaRecorder
        self._workers: CudaWorkers
        self._homes: tuple[list[int], list[int]] = ([], [])
        """By micro-batch: the device of the first stage's forward, and of the last one's."""

    def recorder(self, graph: TaskGraph) -> CudaRecorder:
        """Return what notes events."""
        return CudaRecorder(self._gpus, graph.device.tolist())

    def workers(self, graph: TaskGraph, recorder: Recorder) -> Workers:
        """Return one thread per GPU."""
        assert isinstance(recorder, CudaRecorder), "GPUs are timed by events"
        self._workers = CudaWorkers(graph, self._gpus, recorder=recorder, timeout_s=self._timeout_s)
        self._homes = (_devices(graph, 0), _devices(graph, graph.program.num_stages - 1))
        return self._workers

    def place(self, feed: Feed, micro_batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        """Return micro-batches whose inputs lie where the first stage runs, and whose targets where the last does."""
        first, last = ([self._workers.home(device) for device in devices] for devices in self._homes)
        feed.loss = _loss_on(feed.loss, sorted(set(self._homes[1])), self._workers)
        return [
            replace(part, inputs=first[number].message(part.inputs), target=last[number].value(part.target))
            for number, part in enumerate(micro_batches)
        ]

    def begin_pass(self) -> None:
        """Do nothing: all ports are here."""

    def complete(self, results: Results) -> None:
        """Do nothing: all results are here."""

    def finish(self, graph: TaskGraph, pipeline: Pipeline, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:  # noqa: ARG002 - one signature for all
        """Return the gradients: all stages are here."""
        return gradients

    def meta(self) -> dict[str, Any]:
        """Return which GPUs took part, the peaks of their memory, and how far their clocks can be trusted."""
        peaks = self._workers.peaks()
        gpus = [{"gpu": gpu.driver.name(gpu.device)} | peak for gpu, peak in zip(self._gpus, peaks, strict=True)]
        return {"workers": "cuda", "clock": self._workers.recorder.bound_s, "gpus": gpus}


def _devices(graph: TaskGraph, stage: int) -> list[int]:
    """Return by micro-batch the device that runs a stage's forward."""
    found = np.zeros(graph.program.total_micro_batches, np.int64)
    compute = slice(0, graph.num_compute_tasks)
    forwards = np.isin(graph.kind[compute], (Kind.FORWARD, Kind.OVERLAPPED)) & (graph.stage[compute] == stage)
    tasks = np.flatnonzero(forwards)
    found[graph.micro_batch[tasks]] = graph.device[tasks]
    devices: list[int] = found.tolist()
    return devices


def _loss_on(loss: Any, devices: Sequence[int], workers: CudaWorkers) -> Any:
    """Return the loss with its buffers (weights of classes) where the last stage runs."""
    if not isinstance(loss, nn.Module) or not any(True for _ in loss.buffers()):
        return loss
    if len(devices) > 1:
        raise RefusedError(
            f"loss {type(loss).__name__} has buffers, but the last stage runs on {len(devices)} devices: give a function that "
            "takes them from the target"
        )
    return loss.to(workers.home(devices[0]).device)
