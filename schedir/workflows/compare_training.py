"""Predict schedules, really train with them, and hold the two against each other.

    every schedule has its own copy of the model, from the same weights, and its own copy of the data
    round 0 (warm-up), 1, 2, …:   schedule A: profile ▸ predict ▸ write it down ▸ train   schedule B: the same   …

Profiles and training alternate, because a machine's speed drifts; every prediction is on disk before its measurement begins.
Schedules alternate too, so that a slow minute meets all of them. How a profile becomes a prediction and its interval stands in
`schedir.workflows.predicting`. One round is judged, the one whose measured step is the lower
median: its profile, prediction and measurement follow each other within seconds, and every figure is read from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from schedir.compiler import compile_program
from schedir.costs.table.table import TableCosts
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.ir.weights import Rule
from schedir.timeline.comparison.compare import compare
from schedir.timeline.comparison.noise_floor import noise_floor, noise_words
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.percent import percent
from schedir.timeline.timeline import Timeline
from schedir.workflows.drift import DriftSoFar
from schedir.workflows.plain_torch import NAME, PlainTorch
from schedir.workflows.predicting import Prediction, predict_training
from schedir.workflows.training_results import (
    BUSY,
    ComparisonProgress,
    Report,
    Round,
    TrainedSchedule,
    TrainingSetting,
    judged_round,
)

if TYPE_CHECKING:
    from executor.profiling.profiling import Profiler
    from executor.recipe.recipe import Recipe

REHEARSED = {Rule.LATEST: "1f1b", Rule.PREDICT: "xpipe"}
"""What is profiled for each weight rule; pipedream for all others. An update that keeps the old weights, or a forward that saves
for other weights, costs more, so a schedule is predicted from the same kind of work in another order."""


def compare_training(
    programs: Sequence[Program],
    recipe: Recipe,
    setting: TrainingSetting,
    *,
    progress: Report = lambda _: None,
    write_down: Callable[[list[dict[str, Any]]], None] = lambda _: None,
    plain: PlainTorch | None = None,
) -> tuple[TrainedSchedule, ...]:
    """Predict and train every program on the recipe's model, one device per thread of the CPU.

    `progress` hears before every step, and before the first measured one whether the machine is busy; `write_down` gets all
    predictions so far as plain JSON values, each before its measurement; `plain` trains without a pipeline at the end of every
    round. Raises SchedirError for what does not fit together.
    """
    from executor.global_random import same_random_everywhere

    _check_programs(programs)
    for program in programs:
        recipe.cut(program.num_stages)  # a model with too few layers is refused before anything large is built
    with same_random_everywhere():
        before = DriftSoFar()
        trainees = [_Trainee(program, recipe, setting, before=before) for program in programs]
        clock = _Clock(progress, 2 * len(trainees) + (plain is not None), setting)
        notes: list[dict[str, Any]] = []

        def write(note: dict[str, Any]) -> None:
            notes.append(note)
            write_down(notes)

        for number in clock.rounds():
            for trainee in trainees:
                trainee.take_turn(number, clock, write)
            if plain is not None:
                clock.tick(f"{NAME}: train {counted(plain.num_mini_batches)}", number)
                plain.train(number)
            if number == 0:
                clock.note = _busy(trainees)
        return tuple(trainee.result() for trainee in trainees)


def _busy(trainees: Sequence[_Trainee]) -> str:
    """Return, before minutes of measuring, what they would be spoilt by, while there is time to end it; empty if nothing would."""
    taken = max(trainee.preempted_fraction for trainee in trainees)
    if taken <= BUSY:
        return ""
    return (
        f"the machine is busy: the system took the core away in {percent(taken)} of the tasks of the warm-up; what is measured now "
        "has it, too: end other work for figures of the schedules alone"
    )


def counted(mini_batches: int) -> str:
    """Return how many mini-batches, in words."""
    return f"{mini_batches} mini-batch{'es' if mini_batches > 1 else ''}"


def plain_torch(recipe: Recipe, setting: TrainingSetting, mini_batches: int) -> PlainTorch:
    """Return the baseline on the recipe's own data, so many mini-batches in a round.

    Raises RefusedError where the model cannot be run in one piece, or is trained on GPUs: one thread is measured.
    """
    from executor.model.data import samples
    from executor.profiling.plain import PlainTraining

    if setting.workers != "threads":
        raise RefusedError(f"{NAME} is measured in one thread, but the schedules are trained with {setting.workers}")
    return PlainTorch(PlainTraining(recipe), _endless(recipe, setting.seed), samples, mini_batches=mini_batches)


def _check_programs(programs: Sequence[Program]) -> None:
    if not programs:
        raise ArgumentError("no schedule to train: name at least one")
    names = [program.name for program in programs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ArgumentError(f"schedule {twice} is named twice: name each once, or give files with names of their own")
    for program in programs:
        least = 2 if program.weights.synchronous else 2 * program.num_devices + 1
        if program.num_mini_batches < least:
            raise ArgumentError(
                f"{program.name} has {program.num_mini_batches} mini-batches, but its steady state needs {least}: "
                f"give --mini-batches {least} or more"
            )


class _Clock:
    """Counts the steps of the comparison, and ends it at its time limit."""

    def __init__(self, report: Report, steps_per_round: int, setting: TrainingSetting) -> None:
        self._report, self._setting, self._steps = report, setting, steps_per_round
        self._begin, self._done = monotonic(), 0
        self.note = ""
        """Told with the next step."""

    def rounds(self) -> Iterator[int]:
        """Yield 0 for the warm-up, then the numbers of the measured rounds, as long as there is time."""
        limit = self._setting.time_limit_s
        yield from (0, 1)
        for number in range(2, self._setting.rounds + 1):
            elapsed = monotonic() - self._begin
            if limit is not None and elapsed * (number + 1) / number > limit:
                return
            yield number

    def tick(self, text: str, number: int) -> None:
        """Tell what begins now."""
        rounds = self._setting.rounds
        when = f"round {number} of {rounds}" if number else "warm-up"
        self._report(ComparisonProgress(self._done, self._steps * (rounds + 1), f"{text} ({when})", self.note))
        self._done, self.note = self._done + 1, ""


class _Trainee:
    """One schedule with its copy of the model, its data, and what has been measured of it."""

    def __init__(self, program: Program, recipe: Recipe, setting: TrainingSetting, *, before: DriftSoFar) -> None:
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
        self._data = _endless(recipe, setting.seed)
        self._sizes = _micro_batch_sizes(recipe, program.num_micro_batches, setting.seed)
        self._cores = _shared_cores(program, setting)
        self._profiler = _profiler(self.graph, recipe, setting, micro_batch_size=max(self._sizes))
        self._rounds: list[Round] = []
        self._losses: list[float] = []
        self.preempted_fraction = 0.0
        """Share of the newest profile's samples during which the system took the core away."""

    @property
    def name(self) -> str:
        return self.graph.program.name

    def take_turn(self, number: int, clock: _Clock, write: Callable[[dict[str, Any]], None]) -> None:
        """Predict, write the prediction down, and train; number 0 warms up."""
        clock.tick(f"{self.name}: profile and predict", number)
        costs, predicted = self.predict(number)
        if number:
            write({"schedule": self.name, "round": number, **predicted.note()})
        clock.tick(f"{self.name}: train {counted(self.graph.program.num_mini_batches)}", number)
        self.train(number, costs, predicted)

    def predict(self, number: int) -> tuple[TableCosts, Prediction]:
        """Profile, and return the costs and what they predict."""
        costs, setting = replace(self._profiler.measure(), micro_batch_sizes=self._sizes), self._setting
        self.preempted_fraction = costs.source["preempted_fraction"]
        seed = setting.seed + number * setting.draws
        predicted = predict_training(self.graph, costs, draws=setting.draws, seed=seed, cores=self._cores, before=self._before)
        return costs, replace(predicted, timeline=_marked(predicted.timeline, **self._marks(number)))

    def train(self, number: int, costs: TableCosts, predicted: Prediction) -> None:
        """Train one run of the graph; number 0 warms up."""
        from executor.recipe.short_passes import precision_of
        from executor.training import train

        program = self.graph.program
        mini_batches = list(islice(self._data, program.num_mini_batches))  # drawn before the recipe's precision holds
        with precision_of(self._recipe):
            run = train(self.graph, self._pipeline, mini_batches, seed=self._setting.seed, workers=self._setting.workers)
        self._losses += run.losses
        measured = _marked(run.timeline, warm_up=number == 0, **self._marks(number))
        step = step_seconds(measured)
        self._before.follow(self.name, step)
        if number:
            self._rounds.append(Round(number, costs, predicted, measured, step))

    def _marks(self, number: int) -> dict[str, Any]:
        return {"model": self._recipe.name, "round": number, "mini_batch_size": sum(self._sizes)}

    def result(self) -> TrainedSchedule:
        """Return all that was found."""
        floor = noise_floor([one.measured for one in self._rounds], [one.measured_step_s for one in self._rounds])
        noise = {"noise_floor_fraction": floor, "noise_floor_of": noise_words(len(self._rounds))}
        rounds = [replace(one, measured=_marked(one.measured, **noise)) for one in self._rounds]
        judged = judged_round(rounds)
        return TrainedSchedule(
            graph=self.graph,
            rounds=tuple(rounds),
            judged=judged,
            losses=tuple(self._losses),
            mini_batch_size=sum(self._sizes),
            comparison=compare(judged.predicted.timeline, [one.measured for one in rounds]),
        )


def _marked(timeline: Timeline, **marks: Any) -> Timeline:
    """Return the timeline with more of what pictures and traces say beside the times."""
    return replace(timeline, meta={**timeline.meta, **marks})


def _endless(recipe: Recipe, seed: int) -> Iterator[Any]:
    """Yield the recipe's mini-batches; where they end, those of the next seed follow: another epoch."""
    for epoch in count(seed):
        yield from recipe.data(epoch)


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
    )
    return Profiler(recipe, options)
