"""Training one model with one schedule in three ways, by turns in the same processes: what runs in each of them.

    schedir, processes     executor.train with workers="distributed", one gloo process per device
    torch, processes       torch's own schedule of that name, one gloo process per device
    schedir, threads       executor.train with workers="threads" in process 0; the others wait meanwhile

A step is what lies between asking for one mini-batch and asking for the next, in process 0, which ends a step last. So all that a
step costs is in it, on both sides: cutting the data, waiting for the other devices, the update.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # torch lists no names

from benchmarks.executor.stopwatch import Stopwatch
from executor.model.pipeline import Pipeline
from executor.profiling.parts import copy_stages
from executor.recipe.recipe import MiniBatch, Recipe
from executor.torch_runtime import TorchRuntime
from executor.training import train
from executor.workers.distributed.meeting.start import own_run, second_client
from executor.workers.environment import VARIABLES, process_number
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program

WAIT_S = 120.0
"""How long anybody waits for another process."""


class Way(StrEnum):
    """How a model is trained."""

    PROCESSES = "schedir, processes"
    TORCH = "torch, processes"
    THREADS = "schedir, threads"


@dataclass(frozen=True, slots=True)
class Match:
    """One model and one schedule."""

    schedule: str
    model: Callable[[], Recipe]
    num_devices: int = 2
    num_micro_batches: int = 8

    def graph(self) -> TaskGraph:
        """Return the graph of one mini-batch; torch's GPipe runs its backwards in order."""
        shape = {"num_devices": self.num_devices, "num_micro_batches": self.num_micro_batches}
        options: dict[str, Any] = {"order": "fifo"} if self.schedule == "gpipe" else {}
        return compile_program(build_program(self.schedule, **shape, **options))


@dataclass(frozen=True, slots=True)
class Contest:
    """A match and how long it takes."""

    match: Match
    rounds: int
    """One more warms up."""
    steps: int
    """Of one way in a round; one more warms up."""


@dataclass(slots=True)
class Laps:
    """Steps of one way in one round, without the first, which warms up."""

    seconds: list[float] = field(default_factory=list)
    durations: list[Floats] = field(default_factory=list)
    """By step: seconds of every task (num_tasks), NaN where another process knows them."""


@dataclass(slots=True)
class Part:
    """What one process knows of a match."""

    loss_difference: float
    """Between both losses of the first mini-batch, relative; 0 in processes without the last stage."""
    gradient_difference: float
    """Largest between any two gradients of it, relative to the largest gradient of its stage."""
    rounds: list[dict[Way, Laps]] = field(default_factory=list)


def compete(contest: Contest) -> Part:
    """Compare one step of both, then train in all ways by turns; runs in every process."""
    torch.set_num_threads(1)
    number, count = process_number(), contest.match.num_devices
    # in the store where our own processes meet: a port that is free when a contest is made may be taken when it begins
    meeting, patience = PrefixStore(own_run(), second_client()), timedelta(seconds=WAIT_S)
    distributed.init_process_group("gloo", store=meeting, rank=number, world_size=count, timeout=patience)
    try:
        part = _compared(contest.match)
        ways = _Ways(contest.match)
        for turn in range(contest.rounds + 1):
            laps = {way: ways.run(way, contest.steps) for way in Way}
            part.rounds += [laps] if turn else []
        return part
    finally:
        distributed.destroy_process_group()


class _Torch:
    """Torch's side in one process."""

    def __init__(self, recipe: Recipe, graph: TaskGraph) -> None:
        stages = copy_stages(recipe.cut(graph.program.num_stages))
        self.graph, self.watch = graph, Stopwatch()
        self.runtime = TorchRuntime(graph.program, stages, loss=self.watch.watched_loss(recipe.loss), own=True)
        for part in self.runtime.parts:
            self.watch.watch(part)
        self.parameters = {stage: list(stages[stage].parameters()) for stage in self.runtime.stages}
        self._optimizers = {stage: recipe.optimizer(parameters) for stage, parameters in self.parameters.items()}

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
        """Add the gradients of a mini-batch; return its loss in the last stage's process."""
        return self.runtime.step(inputs, targets)

    def update(self) -> None:
        """Apply the gradients and forget them."""
        for stage, optimizer in self._optimizers.items():
            with self.watch.counting((Kind.UPDATE, stage, -1)):
                optimizer.step()
                optimizer.zero_grad()


class _Ways:
    """Everything that trains in one process; each way has a model of its own."""

    def __init__(self, match: Match) -> None:
        self._recipe, self._graph = match.model(), match.graph()
        self._torch = _Torch(self._recipe, self._graph)
        self._pipelines = {way: pipeline_of(self._recipe, self._graph) for way in (Way.PROCESSES, Way.THREADS)}

    def run(self, way: Way, steps: int) -> Laps:
        """Train for some steps, one more of which warms up; the others wait for those that take no part."""
        data, laps = list(islice(self._recipe.data(0), steps + 1)), Laps()
        distributed.barrier()
        if way is Way.TORCH:
            self._run_torch(data, laps)
        elif way is Way.PROCESSES:
            self._run_ours(way, data, laps, workers="distributed")
        elif process_number() == 0:
            with _started_alone():
                self._run_ours(way, data, laps, workers="threads")
        distributed.barrier()
        laps.seconds, laps.durations = laps.seconds[1:], laps.durations[1:]
        return laps

    def _run_torch(self, data: Sequence[MiniBatch], laps: Laps) -> None:
        for inputs, targets in _timed(data, laps):
            self._torch.step(inputs, targets)
            self._torch.update()
            laps.durations.append(self._torch.watch.take(self._graph))

    def _run_ours(self, way: Way, data: Sequence[MiniBatch], laps: Laps, *, workers: str) -> None:
        run = train(self._graph, self._pipelines[way], _timed(data, laps), workers=workers, timeout=WAIT_S)
        laps.durations += [timeline.end - timeline.start for timeline in run.timelines]


def _timed(data: Iterable[MiniBatch], laps: Laps) -> Iterator[MiniBatch]:
    """Yield mini-batches; note how long each was worked on."""
    for mini_batch in data:
        begin = perf_counter()
        yield mini_batch
        laps.seconds.append(perf_counter() - begin)


@contextmanager
def _started_alone() -> Iterator[None]:
    """Hide from the executor that this process has others beside it, which wait."""
    hidden = {name: os.environ.pop(name) for name in VARIABLES}
    try:
        yield
    finally:
        os.environ.update(hidden)


def pipeline_of(recipe: Recipe, graph: TaskGraph) -> Pipeline:
    """Return a pipeline of copies of a recipe's stages."""
    return Pipeline(copy_stages(recipe.cut(graph.program.num_stages)), loss=recipe.loss, optimizer=recipe.optimizer)


def _compared(match: Match) -> Part:
    """Train both on one mini-batch, and compare losses and gradients."""
    recipe, graph = match.model(), match.graph()
    inputs, targets = next(iter(recipe.data(0)))
    theirs = _Torch(recipe, graph)
    loss = theirs.step(inputs, targets)
    pipeline = pipeline_of(recipe, graph)
    run = train(graph, pipeline, [(inputs, targets)], workers="distributed", timeout=WAIT_S)
    keys = {stage: pipeline.keys(stage) for stage in theirs.parameters}
    differences = [
        _difference([run.gradients[key] for key in keys[stage]], [parameter.grad for parameter in parameters])
        for stage, parameters in theirs.parameters.items()
    ]
    return Part(0.0 if loss is None else abs(loss / run.losses[0] - 1.0), max(differences))


def _difference(ours: Sequence[Tensor], theirs: Sequence[Tensor | None]) -> float:
    """Return the largest difference of a stage's gradients, relative to the largest of ours; infinite if one is missing."""
    if any(other is None for other in theirs):
        return inf
    largest = max(float(gradient.abs().max()) for gradient in ours)
    pairs = ((mine, other) for mine, other in zip(ours, theirs, strict=True) if other is not None)
    return float(torch.stack([(mine - other).abs().max() for mine, other in pairs]).max()) / largest
