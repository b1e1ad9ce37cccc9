"""Really train as a task graph says, and measure every task."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from executor.clock import Recorder
from executor.data import MicroBatch, cut, in_groups
from executor.feed import Autocast, Feed, ReadLog, Reads
from executor.gradients import mean_over_replicas
from executor.pipeline import Pipeline
from executor.plan import PlannedAction, PlannedReduction, make_plan
from executor.predictors import make_predictor
from executor.runner import Body, Runner
from executor.stage import StageRuntime
from executor.weights import StageWeights
from executor.workers.threads import ThreadWorkers
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.timeline.timeline import Source, Timeline

WORKERS = ("auto", "threads")


@dataclass(frozen=True, slots=True)
class Run:
    """What a training run gave."""

    losses: list[float]
    """Loss of every mini-batch, at the weights that its forwards read."""
    timelines: tuple[Timeline, ...]
    """Measured spans of every pass over the graph; the first is the warm-up."""
    reads: Reads
    """Which weights the tasks of the last pass read."""
    gradients: Mapping[str, Tensor]
    """Gradients of every stage's last update, under the keys of `state_dict`."""
    pipeline: Pipeline

    @property
    def timeline(self) -> Timeline:
        """The pass of median length, the warm-up left out where there are others."""
        candidates = sorted(self.timelines[1:] or self.timelines, key=lambda timeline: timeline.makespan_s)
        return candidates[(len(candidates) - 1) // 2]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the newest true weights, and the buffers, under the keys of the unpartitioned model."""
        return self.pipeline.state_dict()


def train(
    graph: TaskGraph,
    pipeline: Pipeline,
    mini_batches: Iterable[object],
    *,
    workers: str = "auto",
    seed: int = 0,
    timeout: float = 600.0,
) -> Run:
    """Train on mini-batches (input, target); the pipeline's stages have the new weights afterwards.

    A synchronous graph is repeated until the data ends, a continuous one must cover it. `workers`: threads, one per device, on
    the CPU; auto chooses. `seed` is for what stages draw themselves (dropout). Nobody waits longer than `timeout` seconds for
    another device. Raises ArgumentError or RefusedError for what does not fit together, RunError, or the first error that a
    stage raises, with its traceback.
    """
    if workers not in WORKERS:
        raise ArgumentError(f"workers {workers!r} is unknown: use {' or '.join(WORKERS)}")
    if len(pipeline.stages) != graph.program.num_stages:
        raise ArgumentError(
            f"the pipeline has {len(pipeline.stages)} stages, but the graph {graph.program.num_stages}: make both equal"
        )
    session = Session(graph, pipeline, seed=seed, timeout_s=timeout)
    try:
        return session.train(mini_batches)
    finally:
        session.close()


def _passes(graph: TaskGraph, mini_batches: Iterable[object], pipeline: Pipeline) -> Iterator[list[MicroBatch]]:
    """Yield the micro-batches of one pass over the graph after the other."""
    program = graph.program
    size, stream = program.num_mini_batches, iter(mini_batches)
    for number, group in enumerate(in_groups(stream, size)):
        if len(group) < size:
            missing = f"the data ends after {len(group)} mini-batches of a graph of {size}"
            raise ArgumentError(f"{missing}: build the program with num_mini_batches={len(group)}, or give more data")
        if not program.weights.synchronous and number:
            raise ArgumentError(
                f"the data has more mini-batches than the graph's {size}: build the program with num_mini_batches=…"
            )
        yield [part for pair in group for part in cut(pair, program.num_micro_batches, pipeline.loss_scales)]


class Session:
    """Threads, stages and data of one call of `train`; a `recorder` of one's own may note more than start and end."""

    def __init__(
        self, graph: TaskGraph, pipeline: Pipeline, *, seed: int, timeout_s: float, recorder: Recorder | None = None
    ) -> None:
        plan = make_plan(graph)
        self._graph, self._pipeline, self._seed = graph, pipeline, seed
        self._recorder = Recorder(graph.num_tasks) if recorder is None else recorder
        self._log = ReadLog(graph)
        self._feed = Feed(pipeline.loss, seed, Autocast.current(), self._log, graph.program.num_micro_batches)
        self._crew = TrainingCrew(graph, pipeline, self._feed)
        self._threads = torch.get_num_threads()
        self._workers = ThreadWorkers(graph.program.num_devices, self._recorder, timeout_s=timeout_s, enter=_one_thread)
        self._runner = Runner(graph, plan, self._crew, workers=self._workers, recorder=self._recorder)

    def train(self, mini_batches: Iterable[object]) -> Run:
        """Run pass after pass over the graph until the data ends."""
        losses: list[float] = []
        timelines: list[Timeline] = []
        for number, micro_batches in enumerate(_passes(self._graph, mini_batches, self._pipeline)):
            self._feed.load(micro_batches, len(losses))
            self._crew.begin()
            self._runner.run_once()
            losses += self._feed.mini_batch_losses()
            timelines.append(self._timeline(number))
        if not timelines:
            raise ArgumentError("there are no mini-batches: give at least one (input, target)")
        return Run(losses, tuple(timelines), self._log.reads(), self._crew.last_gradients(), self._pipeline)

    def _timeline(self, number: int) -> Timeline:
        start, end = self._recorder.spans()
        meta = {
            "workers": "threads",
            "pass": number,
            "first_mini_batch": self._feed.first_mini_batch,
            "warm_up": number == 0,
            "seed": self._seed,
            "clock": 0.0,
            "machine": {"platform": platform.platform(), "processor": platform.machine(), "torch": torch.__version__},
        }
        return Timeline(self._graph, start, end, Source.MEASURED, meta=meta)

    def close(self) -> None:
        """End the threads and give the modules their parameters back."""
        self._workers.close()
        self._crew.close()
        torch.set_num_threads(self._threads)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread in this one: the devices share the cores."""
    torch.set_num_threads(1)
    yield


class TrainingCrew:
    """What tasks do when a pipeline is trained."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, feed: Feed) -> None:
        self._graph, self._pipeline = graph, pipeline
        self._device = graph.device.tolist()
        hosts = graph.stage_devices()
        self._stages = {
            (device, stage): self._make_stage(stage, replica, feed)
            for stage, devices in enumerate(hosts)
            for replica, device in enumerate(devices)
        }
        self._methods: dict[Kind, Callable[[StageRuntime], Body]] = {
            Kind.FORWARD: lambda stage: stage.forward,
            Kind.BACKWARD: lambda stage: stage.backward,
            Kind.INPUT_GRAD: lambda stage: stage.input_grad,
            Kind.WEIGHT_GRAD: lambda stage: stage.weight_grad,
            Kind.RECOMPUTE: lambda stage: stage.recompute,
            Kind.UPDATE: lambda stage: stage.update,
            Kind.PREDICT: lambda stage: stage.predict,
        }

    def _make_stage(self, stage: int, replica: int, feed: Feed) -> StageRuntime:
        copy = self._pipeline.copy(stage, replica)
        predictor = None
        if copy.optimizer is not None:
            predictor = make_predictor(copy.optimizer, copy.parameters, self._pipeline.adam_prediction)
        weights = StageWeights(copy, predictor)
        return StageRuntime(stage, copy, weights=weights, feed=feed, is_last=stage == len(self._pipeline.stages) - 1)

    def begin(self) -> None:
        """Get all stages ready for the next pass."""
        for stage in self._stages.values():
            stage.begin()

    def body(self, action: PlannedAction) -> Body:
        """Return the method of the stage that stands on the task's device."""
        stage = self._stages[self._device[action.task], action.stage]
        return partial(self._methods[action.kind](stage), action)

    def share(self, reduction: PlannedReduction, member: int) -> Callable[[], Any]:
        """Return what takes a replica's sum of gradients."""
        stage = self._stages[self._device[member], reduction.stage]
        return partial(stage.sums.take, reduction.update)

    def total(self, reduction: PlannedReduction) -> Callable[[Sequence[Any]], Any]:
        """Return what adds the replicas' sums, in the order of their devices."""
        return partial(mean_over_replicas, num_averaged=reduction.num_averaged)

    def last_gradients(self) -> Mapping[str, Tensor]:
        """Return the gradients of every stage's last update, under the keys of the whole model."""
        found: dict[str, Tensor] = {}
        for (_, number), stage in self._stages.items():
            gradients = zip(self._pipeline.keys(number), stage.last_gradients, strict=True)
            found |= {key: gradient for key, gradient in gradients if gradient is not None}
        return found

    def close(self) -> None:
        """Give every module its own parameters back."""
        for stage in self._stages.values():
            stage.close()
