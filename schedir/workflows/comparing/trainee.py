"""One schedule on its way through a comparison with training: profiled, predicted and trained on a copy of the model of its own.

    profile ─▸ costs ─▸ prediction          the same kinds of work in another order, on as many threads as there are devices
    train   ─▸ measured timeline, losses    its own copy of the model, which trains on over all rounds

Round 0 warms up. A profile never rehearses just what is judged, or the prediction would have seen its measurement: the order is
another one, or at least the number of micro-batches is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from schedir.compiler import compile_program
from schedir.costs.table.table import TableCosts
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.ir.weights import Rule
from schedir.timeline.comparison.compare import compare
from schedir.timeline.comparison.noise_floor import noise_floor, noise_words
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Timeline
from schedir.workflows.comparing.drift import DriftSoFar
from schedir.workflows.comparing.predicting import Prediction, predict_training
from schedir.workflows.comparing.training_results import Round, TrainedSchedule, TrainingSetting, judged_round, round_words

if TYPE_CHECKING:
    from executor.profiling.profiling import Profiler
    from executor.recipe.recipe import Recipe

REHEARSED = {Rule.LATEST: "1f1b", Rule.PREDICT: "xpipe"}
"""What is profiled for each weight rule; pipedream for all others. An update that keeps the old weights, or a forward that saves
for other weights, costs more, so a schedule is predicted from the same kind of work in another order."""

MOST_LEFT_OUT = 100_000
"""Mini-batches in a row that are smaller than the first: whoever gives as many has no others."""


class Trainee:
    """One schedule with its copy of the model, its data, and what has been measured of it."""

    def __init__(self, program: Program, recipe: Recipe, setting: TrainingSetting, *, before: DriftSoFar) -> None:
        """Take what all schedules have in common; `before` hears of every measured step.

        Raises SchedirError where program, recipe and setting do not fit together.
        """
        from executor.profiling.parts import copy_stages
        from executor.recipe.short_passes import decides_together, pipeline_of

        self._setting, self._recipe, self._before = setting, recipe, before
        self._pipeline = pipeline_of(recipe, copy_stages(recipe.cut(program.num_stages)))
        graph = compile_program(
            program,
            recompute=setting.recompute,
            skips=self._pipeline.skips,
            ties=self._pipeline.ties,
            common_update=decides_together(recipe, program),
        )
        self.graph = _trained_graph(graph, setting.workers)
        self._data = full_sized(endless(recipe, setting.seed))
        self._sizes = _micro_batch_sizes(recipe, program.num_micro_batches, setting.seed)
        self._cores = _shared_cores(program, setting)
        self._profiler = _profiler(self.graph, recipe, setting, micro_batch_size=max(self._sizes))
        self._rounds: list[Round] = []
        self._losses: list[float] = []
        self.preempted_fraction = 0.0
        """Share of the newest profile's samples during which the system took the core away."""

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.graph.program.name

    def predict(self, number: int) -> tuple[TableCosts, Prediction]:
        """Profile, and return the costs and what they predict; every number draws durations of its own."""
        costs, setting = replace(self._profiler.measure(), micro_batch_sizes=self._sizes), self._setting
        self.preempted_fraction = costs.source["preempted_fraction"]
        seed = setting.seed + number * setting.draws
        predicted = predict_training(self.graph, costs, draws=setting.draws, seed=seed, cores=self._cores, before=self._before)
        return costs, replace(predicted, timeline=_marked(predicted.timeline, **self._marks(number)))

    def train(self, number: int, costs: TableCosts, predicted: Prediction) -> None:
        """Train one run of the graph, on the mini-batches behind those of the last; number 0 warms up."""
        from executor.recipe.short_passes import precision_of
        from executor.training import train

        program = self.graph.program
        mini_batches = list(islice(self._data, program.num_mini_batches))  # drawn before the recipe's precision holds
        with precision_of(self._recipe):
            run = train(
                self.graph,
                self._pipeline,
                mini_batches,
                seed=self._setting.seed,
                workers=self._setting.workers,
                timeout=self._setting.timeout,
            )
        self._losses += run.losses
        measured = _marked(run.timeline, warm_up=number == 0, **self._marks(number))
        step = step_seconds(measured)
        self._before.follow(self.name, step)
        if number:
            self._rounds.append(Round(number, costs, predicted, measured, step))

    def _marks(self, number: int) -> dict[str, Any]:
        return {"model": self._recipe.name, "round": number, "mini_batch_size": sum(self._sizes)}

    @property
    def rounds(self) -> tuple[Round, ...]:
        """All that were measured so far."""
        return tuple(self._rounds)

    def result(self, warned: str = "") -> TrainedSchedule:
        """Return all that was found, in one measured round or more; `warned` says why little can be concluded, if anything."""
        floor = noise_floor([one.measured for one in self._rounds], [one.measured_step_s for one in self._rounds])
        noise = {"noise_floor_fraction": floor, "noise_floor_of": noise_words(len(self._rounds))}
        marks = {"caution": warned} if warned else {}
        rounds = [_of_round(one, marks, **noise) for one in self._rounds]
        drawn = rounds.index(judged_round(rounds))
        judged = _of_round(rounds[drawn], {"which_round": round_words(rounds[drawn], rounds)})
        rounds[drawn] = judged
        return TrainedSchedule(
            graph=self.graph,
            rounds=tuple(rounds),
            judged=judged,
            losses=tuple(self._losses),
            mini_batch_size=sum(self._sizes),
            comparison=compare(judged.predicted.timeline, [one.measured for one in rounds], chosen=judged.measured),
        )


def _of_round(one: Round, marks: dict[str, Any], **measured: Any) -> Round:
    """Return the round with marks on both of its timelines, and with those that only its measurement has."""
    predicted = replace(one.predicted, timeline=_marked(one.predicted.timeline, **marks))
    return replace(one, predicted=predicted, measured=_marked(one.measured, **marks, **measured))


def _marked(timeline: Timeline, **marks: Any) -> Timeline:
    """Return the timeline with more of what pictures and traces say beside the times."""
    return replace(timeline, meta={**timeline.meta, **marks})


def endless(recipe: Recipe, seed: int) -> Iterator[Any]:
    """Yield the recipe's mini-batches; where they end, those of the next seed follow: another epoch."""
    for epoch in count(seed):
        yield from recipe.data(epoch)


def full_sized(mini_batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the mini-batches that are not smaller than the first: the last of an epoch is not what was predicted.

    Raises ArgumentError for what is no pair, and where none of that size comes any more.
    """
    from executor.model.data import paired, samples

    size = left_out = 0
    for mini_batch in mini_batches:
        found = samples(paired(mini_batch)[0])
        size, left_out = size or found, left_out + 1 if found < size else 0
        if left_out > MOST_LEFT_OUT:
            raise ArgumentError(f"no mini-batch has the {size} samples of the first one any more: give data of one size")
        if not left_out:
            yield mini_batch


def _micro_batch_sizes(recipe: Recipe, num_micro_batches: int, seed: int) -> tuple[int, ...]:
    """Return the samples of each micro-batch, as `torch.tensor_split` cuts them."""
    from executor.model.data import samples

    first = next(iter(recipe.data(seed)), None)
    size = 0 if first is None else samples(first[0])
    if size < num_micro_batches:
        raise ArgumentError(
            f"recipe {recipe.name} gives {size} samples for {num_micro_batches} micro-batches: give more, or cut less"
        )
    whole, larger = divmod(size, num_micro_batches)
    return (whole + 1,) * larger + (whole,) * (num_micro_batches - larger)


def _trained_graph(graph: TaskGraph, workers: str) -> TaskGraph:
    """Return the graph that these workers can run here: devices take turns where there are fewer GPUs."""
    from executor.workers.choice import WorkersKind, fitted

    return fitted(graph, WorkersKind(workers))


def _shared_cores(program: Program, setting: TrainingSetting) -> int | None:
    """Return how many cores the devices share, None if each has one, or is a GPU."""
    from executor.workers.waking import usable_cores

    cores = usable_cores()
    return cores if setting.workers == "threads" and program.num_devices > cores else None


def _profiler(graph: TaskGraph, recipe: Recipe, setting: TrainingSetting, *, micro_batch_size: int) -> Profiler:
    """Return what measures the same kinds of work on as many threads as the graph has devices, in another order."""
    from executor.profiling.options import ProfileOptions
    from executor.profiling.profiling import Profiler
    from executor.profiling.rehearsal import first_hosts

    program = graph.program
    rule, kinds = program.weights.rule, {*program.kind.tolist(), *program.pairs.kind.tolist()}
    options = ProfileOptions(
        num_stages=program.num_stages,
        micro_batch_size=micro_batch_size,
        schedule=REHEARSED.get(rule, "pipedream"),
        num_micro_batches=program.num_micro_batches + 1,  # not those that are judged
        recompute_mode=graph.options.recompute_text,
        recompute=False,
        predict=rule is Rule.PREDICT,
        whole_backward=Kind.BACKWARD in kinds,
        split_backward=Kind.INPUT_GRAD in kinds,
        devices=first_hosts(program),
        own_core=_shared_cores(program, setting) is not None,
        workers=setting.workers,
        repeats=setting.repeats,
        warm_up=2,
        seed=setting.seed + 1,
        timeout=setting.timeout,
    )
    return Profiler(recipe, options)
