"""Is a change predicted? One stage made half as slow again, and 20 ms on every link, without profiling anew.

The slower stage sleeps half of what its profile says in every forward and backward, as a slower device would: it does not take
the core away from the others. Runs with and without the change alternate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.validation.configurations import Configuration
from executor.model.pipeline import Pipeline
from executor.profiling.parts import copy_stages
from executor.profiling.profiling import ProfileOptions, Profiler
from executor.recipe.recipe import Recipe
from executor.run.clock import Recorder
from executor.training import Session
from executor.workers.base import Workers
from executor.workers.emulated import EmulatedWorkers
from executor.workers.team import OneProcess
from schedir.compiler import compile_program
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.files import replaced_whole
from schedir.ir.graph import TaskGraph
from schedir.ir.in_order import TaskTimes
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Timeline
from simulator import simulate

SLOWER = 1.5
LINK_S = 0.02
TIMEOUT_S = 120.0
DRAWS = 21

CHANGED = (
    Configuration("mlp", "1f1b", 4, "never"),
    Configuration("convolutions", "gpipe", 4, "never"),
    Configuration("transformer", "1f1b", 4, "never"),
    Configuration("transformer", "xpipe", 4, "never"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one configuration: how much longer a step takes, as a fraction."""

    what: str
    configuration: Configuration
    predicted: float
    measured: float


def save_changes(found: Sequence[Change], path: Path) -> None:
    """Write changes beside the spans."""
    with replaced_whole(path) as partial:
        partial.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", encoding="utf-8")


def load_changes(path: Path) -> list[Change]:
    """Return what was written."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [Change(**{**one, "configuration": Configuration(**one["configuration"])}) for one in stored]


def changes(configuration: Configuration, *, rounds: int, mini_batches: int) -> Iterator[Change]:
    """Yield the predicted and measured changes of one configuration."""
    recipe, graph = configuration.recipe(), compile_program(configuration.program(mini_batches))
    costs = _profile(recipe, configuration)
    base = _predicted_step(graph, costs)
    slower = _slower(costs.rows[-1])
    slept = [_sleep_of(costs.rows[-1].forward), _sleep_of(costs.rows[-1].backward)]
    variants: list[tuple[str, TableCosts, _Trainer]] = [
        (f"last stage x {SLOWER}", replace(costs, rows=(*costs.rows[:-1], slower)), _Trainer(recipe, graph, sleeps=slept)),
        (f"{LINK_S * 1e3:.0f} ms on every link", replace(costs, transfer=LINK_S), _Trainer(recipe, graph, link_s=LINK_S)),
    ]
    plain = _Trainer(recipe, graph)
    steps: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, trainer in (("", plain), *((what, one) for what, _, one in variants)):
            step = step_seconds(trainer.run())
            if number:  # the first round warms up
                steps.setdefault(name, []).append(step)
    for what, changed, _ in variants:
        measured = float(np.median(steps[what])) / float(np.median(steps[""]))
        yield Change(what, configuration, _predicted_step(graph, changed) / base - 1, measured - 1)


def _profile(recipe: Recipe, configuration: Configuration) -> TableCosts:
    program = configuration.program(2)
    options = ProfileOptions(
        num_stages=program.num_stages,
        num_micro_batches=program.num_micro_batches,
        schedule="xpipe" if configuration.schedule == "xpipe" else "1f1b",
        recompute=False,
        predict=False,
        warm_up=3,
        repeats=12,
    )
    return Profiler(recipe, options).measure()


def _predicted_step(graph: TaskGraph, costs: TableCosts) -> float:
    return float(np.median([step_seconds(simulate(graph, costs, seed=seed)) for seed in range(DRAWS)]))


def _slower(row: PieceCosts) -> PieceCosts:
    forward, backward = (time.scaled(SLOWER) for time in (row.forward, row.backward) if isinstance(time, WorkTime))
    return replace(row, forward=forward, backward=backward)


def _sleep_of(time: object) -> float:
    assert isinstance(time, WorkTime)
    return (SLOWER - 1) * time.median


class _Trainer:
    """A copy of a model that is trained again and again, perhaps with a change."""

    def __init__(self, recipe: Recipe, graph: TaskGraph, *, sleeps: list[float] | None = None, link_s: float = 0.0) -> None:
        stages = list(copy_stages(recipe.cut(graph.program.num_stages)))
        if sleeps is not None:
            stages[-1] = nn.Sequential(_Sleeping(*sleeps), stages[-1])
        self._graph, self._data, self._link_s = graph, recipe.data(0), link_s
        self._stream = iter(self._endless(recipe))
        self._pipeline = Pipeline(stages, loss=recipe.loss, optimizer=recipe.optimizer)

    @staticmethod
    def _endless(recipe: Recipe) -> Iterator[Any]:
        seed = 0
        while True:
            yield from recipe.data(seed)
            seed += 1

    def run(self) -> Timeline:
        team = _SlowLinks(self._link_s) if self._link_s else OneProcess(timeout_s=TIMEOUT_S)
        session = Session(self._graph, self._pipeline, seed=0, team=team)
        try:
            return session.train(islice(self._stream, self._graph.program.num_mini_batches)).timeline
        finally:
            session.close()


class _SlowLinks(OneProcess):
    """Threads between which every hand-over arrives later."""

    def __init__(self, latency_s: float) -> None:
        super().__init__(timeout_s=TIMEOUT_S)
        self._latency_s = latency_s

    def workers(self, graph: TaskGraph, recorder: Recorder, *, endless: bool) -> Workers:  # noqa: ARG002 - one signature for all
        times = TaskTimes(np.zeros(graph.num_tasks), np.full(graph.num_tasks, self._latency_s))
        return EmulatedWorkers(graph, times, recorder, timeout_s=TIMEOUT_S)


class _Sleeping(nn.Module):
    """Sleeps in forward and in backward, and changes nothing."""

    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self._forward_s, self._backward_s = forward_s, backward_s

    def forward(self, tensor: Tensor) -> Tensor:
        sleep(self._forward_s)
        slept: Callable[..., Tensor] = _SleepingBackward.apply
        return slept(tensor, self._backward_s)


class _SleepingBackward(torch.autograd.Function):
    """The identity, whose backward sleeps."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        sleep(ctx.seconds)
        return gradient, None
