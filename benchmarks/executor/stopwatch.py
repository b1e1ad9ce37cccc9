"""How long torch's own pipelining computes for each action, measured where its runtime calls the stage.

Spans of ours hold the same: forward with the loss, backward, and the update with all that scales gradients for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from torch import Tensor

from executor.model.pipeline import Loss
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph

Name = tuple[Kind, int, int]
"""(kind, stage, micro-batch), -1 for that of an update."""


class Stopwatch:
    """Seconds of the actions of one step in this process."""

    def __init__(self) -> None:
        self._seconds: dict[Name, float] = {}
        self._newest: Name = (Kind.FORWARD, 0, 0)

    def watch(self, part: Any) -> None:
        """Measure the calls of a stage, an object of torch's `PipelineStage`."""
        stage = part.stage_index

        def forward(micro_batch: int, *arguments: Any, **options: Any) -> Any:
            return self._timed((Kind.FORWARD, stage, micro_batch), run_forward, micro_batch, *arguments, **options)

        def backward(micro_batch: int, *, full_backward: bool = True, **options: Any) -> Any:
            kind = Kind.BACKWARD if full_backward else Kind.INPUT_GRAD
            return self._timed((kind, stage, micro_batch), run_backward, micro_batch, full_backward=full_backward, **options)

        def weight_grad(micro_batch: int, **options: Any) -> Any:
            return self._timed((Kind.WEIGHT_GRAD, stage, micro_batch), run_weight_grad, micro_batch, **options)

        def scale(factor: int) -> Any:
            return self._timed((Kind.UPDATE, stage, -1), run_scale, factor)

        run_forward, run_backward = part.forward_one_chunk, part.backward_one_chunk
        run_weight_grad, run_scale = part.backward_weight_one_chunk, part.perform_reduce_grad
        part.forward_one_chunk, part.backward_one_chunk = forward, backward
        part.backward_weight_one_chunk, part.perform_reduce_grad = weight_grad, scale

    def watched_loss(self, loss: Loss) -> Loss:
        """Return a loss whose time counts to the forward before it."""

        def watched(output: Any, target: Any) -> Tensor:
            with self.counting(self._newest):
                return loss(output, target)

        return watched

    @contextmanager
    def counting(self, name: Name) -> Iterator[None]:
        """Add what is done inside to an action."""
        begin = perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + perf_counter() - begin

    def _timed(self, name: Name, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._newest = name
        with self.counting(name):
            return function(*arguments, **options)

    def take(self, graph: TaskGraph) -> Floats:
        """Return the seconds of a graph's tasks (num_tasks), NaN for those of other processes, and begin anew."""
        found = np.full(graph.num_tasks, np.nan)
        for task in range(graph.num_compute_tasks):
            kind = Kind(graph.kind[task])
            micro_batch = -1 if kind is Kind.UPDATE else int(graph.micro_batch[task])
            found[task] = self._seconds.get((kind, int(graph.stage[task]), micro_batch), np.nan)
        self._seconds.clear()
        return found
