"""Really train as a task graph says, and measure every task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from numbers import Integral

import torch
from torch import Tensor

from executor.model.admission import check_timeout
from executor.model.data import MicroBatch, check_mini_batches, cut
from executor.model.pipeline import Pipeline
from executor.model.skips import check_graph_skips
from executor.model.ties import check_graph
from executor.plan.plan import make_plan, refuse_selective
from executor.run.clock import Recorder
from executor.run.crew import TrainingCrew
from executor.run.placing import ends_of, placed, placed_loss
from executor.run.results import PassResults
from executor.run.runner import Runner
from executor.stage.feed import Autocast, Feed, ReadLog, RecordedReads
from executor.workers.choice import choose_workers, fitted, make_team
from executor.workers.team import Team, parting
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect, shown
from schedir.ir.graph import TaskGraph
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """What a training run gave."""

    losses: list[float]
    """Loss of every mini-batch, at the weights that its forwards read."""
    timelines: tuple[Timeline, ...]
    """Measured spans of every pass over the graph; the first is the warm-up."""
    reads: RecordedReads
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

    def __repr__(self) -> str:
        mean = f"first {self.losses[0]:.6g}, last {self.losses[-1]:.6g}" if self.losses else "none"
        name = self.timeline.graph.program.name
        return (
            f"<Run of {name}: {len(self.losses)} losses, {mean}; {len(self.timelines)} passes measured\n"
            "  more: .losses, .timeline, .timelines, .state_dict()>"
        )


def train(  # noqa: PLR0913 - one keyword for each part of a training, and two to say where they are
    graph: TaskGraph,
    pipeline: Pipeline,
    mini_batches: Iterable[object],
    *,
    workers: str = "auto",
    seed: int = 0,
    timeout: float = 600.0,
    clip: object = None,
    loss_scaling: object = None,
) -> Run:
    """Train on mini-batches (input, target); the pipeline's stages have the new weights afterwards.

    A synchronous graph is repeated until the data ends, a continuous one must cover it. `workers`: threads, one per device, on
    the CPU; distributed, one process per device; cuda, one GPU per device, or devices that take turns where there are fewer;
    cuda-partitions, shares of one GPU; auto chooses, and the timeline's meta says what. `seed` is for what stages draw themselves
    (dropout). Nobody waits longer than `timeout` seconds for another device. `clip` and `loss_scaling` are a Trainer's, and refused
    here: a graph that is given says already which updates wait for each other. Raises ArgumentError or RefusedError for what does
    not fit together, RunError, or the first error that a stage raises, with its traceback.
    """
    expect(graph, TaskGraph, "graph", remedy="give what compile_program returns")
    expect(pipeline, Pipeline, "pipeline", remedy="give executor.Pipeline(stages, loss=…, optimizer=…)")
    check_mini_batches(mini_batches, "mini_batches")
    expect(seed, Integral, "seed", remedy="give an integer")
    for name, value in (("clip", clip), ("loss_scaling", loss_scaling)):
        if value is not None:
            raise RefusedError(f"{name} {shown(value)}: train has none: give it to executor.Trainer(stages, schedule=…, {name}=…)")
    kind = choose_workers(workers, pipeline.stages)
    check_timeout(timeout)
    if len(pipeline.stages) != graph.program.num_stages:
        raise ArgumentError(
            f"the pipeline has {len(pipeline.stages)} stages, but the graph {graph.program.num_stages}: make both equal"
        )
    refuse_selective(graph)
    check_graph(graph, pipeline.shared)
    check_graph_skips(graph, pipeline.skip_connections)
    own = fitted(graph, kind)
    # Whatever the caller's thread is in: nothing made in inference mode can be trained.
    with pipeline.claim(by="another call of train: wait for it"), torch.inference_mode(mode=False):
        team = make_team(kind, own, pipeline, seed=seed, timeout_s=timeout)
        with parting(team):
            session = Session(own, pipeline, seed=seed, team=team)
            try:
                return session.train(mini_batches)
            finally:
                session.close()


def _passes(graph: TaskGraph, mini_batches: Iterable[object], pipeline: Pipeline) -> Iterator[list[MicroBatch]]:
    """Yield the micro-batches of one pass over the graph after the other."""
    size, m = graph.program.num_mini_batches, graph.program.num_micro_batches
    for group in _groups(mini_batches, size, repeats=graph.program.weights.synchronous):
        if len(group) < size:
            raise ArgumentError(
                f"the data ends after {len(group)} mini-batches of a graph of {size}: give more data, or build the program with "
                f"num_mini_batches={len(group)}"
            )
        yield [part for mini_batch in group for part in cut(mini_batch, m, pipeline.loss_scales)]


def _groups(mini_batches: Iterable[object], size: int, *, repeats: bool) -> Iterator[list[object]]:
    """Yield the mini-batches of one pass after the other; there is one pass only if the graph cannot be repeated."""
    stream = iter(mini_batches)
    if repeats:
        yield from iter(lambda: list(islice(stream, size)), [])
        return
    group = list(islice(stream, size + 1))
    if len(group) > size:
        raise ArgumentError(
            f"the data has more mini-batches than the graph's {size}, which cannot be repeated: build the program with more "
            "num_mini_batches, or give less data"
        )
    if group:
        yield group


class Session:
    """Workers, stages and data of one call of `train`; a `recorder` of one's own may note more than start and end."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, *, seed: int, team: Team, recorder: Recorder | None = None) -> None:
        plan = make_plan(graph)
        self._graph, self._pipeline, self._seed = graph, pipeline, seed
        self._team, self._recorder = team, team.recorder(graph.num_tasks, endless=False) if recorder is None else recorder
        self._workers = team.workers(graph, self._recorder, endless=False)
        self._log, self._ends = ReadLog(graph), ends_of(graph)
        self._feed = Feed(
            placed_loss(pipeline.loss, self._ends, self._workers),
            seed,
            Autocast.current(self._workers.home(self._workers.devices[0]).device.type),
            self._log,
            graph.program.num_micro_batches,
        )
        self._feed.guard.last_stage = len(pipeline.stages) - 1
        self._feed.trainable = pipeline.trainable
        self._swapped = plan.swapped_stages
        self._threads = torch.get_num_threads()
        self._crew = TrainingCrew(graph, pipeline, self._feed, workers=self._workers)
        self._feed.guard.first_not_finite = self._crew.first_not_finite
        self._runner = Runner(graph, plan, self._crew, workers=self._workers, recorder=self._recorder)

    def train(self, mini_batches: Iterable[object]) -> Run:
        """Run pass after pass over the graph until the data ends."""
        results = PassResults(self._graph, self._team, seed=self._seed)
        size = self._graph.program.num_mini_batches
        for number, micro_batches in enumerate(_passes(self._graph, mini_batches, self._pipeline)):
            self._feed.load(placed(micro_batches, self._ends, self._workers), number * size)
            self._crew.begin()
            if number == 0:
                self._crew.probe(self._swapped)
                self._team.of_all("start of the first pass", None)  # behind it every process has all its ports
            self._team.begin()
            self._runner.run_once()
            results.note(self._feed, self._recorder.times)
        self._team.end()
        results.exchange()
        if not results.timelines:
            raise ArgumentError("there are no mini-batches: give at least one (input, target)")
        gradients = self._finish()
        return Run(results.losses, tuple(results.timelines), self._log.reads(), gradients, self._pipeline)

    def _finish(self) -> Mapping[str, Tensor]:
        """Give every process the newest state of all stages, and what was read; return all gradients."""
        own = self._crew.last_gradients()
        self._crew.close()
        reads = {device: self._log.part(self._graph.lane_range(device)) for device in self._workers.devices}
        shared = {key: gradient.cpu() for key, gradient in own.items()} if self._team.num_processes > 1 else dict(own)
        parts = self._team.of_all("end of the data", (shared, reads))
        self._team.share_state()
        self._pipeline.check_ties()
        for device, read in (item for _, reads in parts for item in reads.items()):
            self._log.take_part(self._graph.lane_range(device), read)
        return {key: gradient for gradients, _ in parts for key, gradient in gradients.items()}

    def close(self) -> None:
        """End the threads and give the modules their parameters back, where they were."""
        self._workers.close()
        self._crew.close()
        self._crew.leave()
        torch.set_num_threads(self._threads)
