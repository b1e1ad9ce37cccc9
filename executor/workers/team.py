"""The processes that train one graph together: this one alone, or one per device.

A session asks its team for workers, and lets it make results whole: each process has only those of its own devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from executor.model.data import MicroBatch
from executor.model.pipeline import Pipeline
from executor.run.clock import Recorder
from executor.stage.feed import Feed
from executor.workers.base import Workers
from executor.workers.threads import ThreadWorkers
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class Results:
    """What one pass over a graph gave: losses and reads (in the feed) and times (in the recorder)."""

    graph: TaskGraph
    feed: Feed
    recorder: Recorder


class Team(Protocol):
    """What a session needs of the processes that train together."""

    def recorder(self, graph: TaskGraph) -> Recorder:
        """Return what notes when tasks start and end."""
        ...

    def place(self, feed: Feed, micro_batches: Sequence[MicroBatch]) -> Sequence[MicroBatch]:
        """Return micro-batches that lie where they are needed, and put the feed's loss there."""
        ...

    def workers(self, graph: TaskGraph, recorder: Recorder) -> Workers:
        """Return the workers for this process's devices."""
        ...

    def begin_pass(self) -> None:
        """Get ready for a pass; behind it every process has all its ports."""
        ...

    def complete(self, results: Results) -> None:
        """Fill in what the other processes' devices gave in the pass that has just ended."""
        ...

    def finish(self, graph: TaskGraph, pipeline: Pipeline, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Give every process the newest state of all stages; return all gradients."""
        ...

    def meta(self) -> dict[str, Any]:
        """Return what a timeline says about its workers: plain values."""
        ...


class OnHost:
    """What teams have in common whose tensors lie in memory that all threads share."""

    def recorder(self, graph: TaskGraph) -> Recorder:
        """Return what reads the host's clock."""
        return Recorder(graph.num_tasks)

    def place(self, feed: Feed, micro_batches: Sequence[MicroBatch]) -> Sequence[MicroBatch]:  # noqa: ARG002 - one signature for all
        """Return the micro-batches as they are."""
        return micro_batches


class OneProcess(OnHost):
    """All devices are threads of this process."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    def workers(self, graph: TaskGraph, recorder: Recorder) -> Workers:
        """Return one thread per device."""
        return ThreadWorkers(graph.program.num_devices, recorder, timeout_s=self._timeout_s, enter=computing_with(1))

    def begin_pass(self) -> None:
        """Do nothing: all ports are here."""

    def complete(self, results: Results) -> None:
        """Do nothing: all results are here."""

    def finish(self, graph: TaskGraph, pipeline: Pipeline, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:  # noqa: ARG002 - one signature for all
        """Return the gradients: all stages are here."""
        return gradients

    def meta(self) -> dict[str, Any]:
        """Return that all threads read one clock."""
        return {"workers": "threads", "clock": 0.0}


def computing_with(num_threads: int) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which a worker's thread computes with a number of threads."""

    @contextmanager
    def enter() -> Iterator[None]:
        torch.set_num_threads(num_threads)
        yield

    return enter
