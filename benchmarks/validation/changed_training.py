"""Training with something slowed down: a stage that waits in forward and backward, links on which everything arrives later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from executor.model.pipeline import Pipeline
from executor.profiling.parts import copy_stages
from executor.randomness import never_draws
from executor.recipe.recipe import Recipe
from executor.run.clock import Recorder
from executor.training import Session
from executor.workers.base import Workers
from executor.workers.emulated import EmulatedWorkers
from executor.workers.team import OneProcess
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from schedir.timeline.metrics.steady import step_seconds

TIMEOUT_S = 120.0

NO_WAITS = (0.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class ChangedRun:
    """What one run took."""

    step_s: float
    """Seconds per mini-batch, of the steady state."""
    computed_s: Floats
    """float64 (num_stages): seconds in the tasks of a stage, what was waited in them left out."""


class ChangedTrainer:
    """A copy of a model that is trained again and again, perhaps with a change."""

    def __init__(self, recipe: Recipe, graph: TaskGraph, *, link_s: float) -> None:
        """`link_s`: seconds by which every hand-over arrives later."""
        stages = list(copy_stages(recipe.cut(graph.program.num_stages)))
        self._waiting = Waiting()
        stages[-1] = nn.Sequential(self._waiting, stages[-1])
        self._graph, self._link_s = graph, link_s
        self._stream = (mini_batch for seed in count() for mini_batch in recipe.data(seed))
        self._pipeline = Pipeline(stages, loss=recipe.loss, optimizer=recipe.optimizer)

    def run(self, waits: tuple[float, float] = NO_WAITS) -> ChangedRun:
        """Train all mini-batches; the last stage waits so many seconds in every forward and backward."""
        self._waiting.begin(waits)
        team = SlowLinks(self._link_s) if self._link_s else OneProcess(timeout_s=TIMEOUT_S)
        session = Session(self._graph, self._pipeline, seed=0, team=team)
        try:
            timeline = session.train(islice(self._stream, self._graph.program.num_mini_batches)).timeline
        finally:
            session.close()
        compute = slice(0, self._graph.num_compute_tasks)
        seconds = (timeline.end - timeline.start)[compute]
        computed: Floats = np.zeros(self._graph.program.num_stages)
        np.add.at(computed, self._graph.stage[compute], seconds)
        computed[-1] -= self._waiting.waited_s
        return ChangedRun(step_seconds(timeline), computed)


class SlowLinks(OneProcess):
    """Threads between which every hand-over arrives later."""

    def __init__(self, latency_s: float) -> None:
        super().__init__(timeout_s=TIMEOUT_S)
        self._latency_s = latency_s

    def workers(self, graph: TaskGraph, recorder: Recorder, *, endless: bool) -> Workers:  # noqa: ARG002 - one signature for all
        """Return threads that hand over with this latency."""
        times = TaskTimes(np.zeros(graph.num_tasks), np.full(graph.num_tasks, self._latency_s))
        return EmulatedWorkers(graph, times, recorder, timeout_s=TIMEOUT_S)


@never_draws  # a layer that might draw would be watched at every operation, which the profile without it is not
class Waiting(nn.Module):
    """Waits in forward and in backward, and changes nothing. Only one thread runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0
        """Seconds that were waited since `begin`."""
        self._seconds = NO_WAITS
        self._late_s = 0.0

    def begin(self, seconds: tuple[float, float]) -> None:
        """Wait so long in forward and in backward from now on."""
        self._seconds, self.waited_s = seconds, 0.0

    def wait(self, seconds: float) -> None:
        """Sleep, so much less as the sleeps before have ended too late."""
        if not seconds:
            return
        begin = perf_counter()
        sleep(max(0.0, seconds - self._late_s))
        waited = perf_counter() - begin
        self._late_s = max(0.0, self._late_s + 0.1 * (waited - seconds))
        self.waited_s += waited

    def forward(self, tensor: Tensor) -> Tensor:
        """Return the same values, later."""
        self.wait(self._seconds[0])
        later: Callable[..., Tensor] = _WaitingBackward.apply
        return later(tensor, self)

    def wait_backward(self) -> None:
        """Wait as long as a backward does."""
        self.wait(self._seconds[1])


class _WaitingBackward(torch.autograd.Function):
    """The identity, whose backward waits."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, waiting: Waiting) -> Tensor:
        ctx.waiting = waiting
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.waiting.wait_backward()
        return gradient, None
