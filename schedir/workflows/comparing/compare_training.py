"""Predict schedules, really train with them, and hold the two against each other.

    every schedule has its own copy of the model, from the same weights, and its own copy of the data
    round 0 (warm-up), 1, 2, …:   schedule A: profile ▸ predict ▸ write it down ▸ train   schedule B: the same   …

Profiles and training alternate, because a machine's speed drifts; every prediction is on disk before its measurement begins.
Schedules alternate too, so that a slow minute meets all of them. What a schedule does in its turn stands in
`trainee.py` beside this file, how a profile becomes a prediction and its interval in `predicting.py`. Every round is held against
its own prediction, whose profile was taken seconds before; figures are medians over the rounds, and the round whose error is
nearest the median is drawn and compared task by task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.program import Program
from schedir.timeline.percent import percent
from schedir.workflows.comparing.drift import DriftSoFar
from schedir.workflows.comparing.plain_torch import NAME, PlainTorch
from schedir.workflows.comparing.trainee import Trainee, endless, full_sized
from schedir.workflows.comparing.training_results import (
    BUSY,
    ComparisonProgress,
    Report,
    TrainedSchedule,
    TrainingSetting,
    caution,
)

if TYPE_CHECKING:
    from executor.recipe.recipe import Recipe


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
        trainees = [Trainee(program, recipe, setting, before=before) for program in programs]
        clock = _Clock(progress, 2 * len(trainees) + (plain is not None), setting)
        notes: list[dict[str, Any]] = []

        def write(note: dict[str, Any]) -> None:
            notes.append(note)
            write_down(notes)

        for number in clock.rounds():
            for trainee in trainees:
                _take_turn(trainee, number, clock=clock, write=write)
            if plain is not None:
                clock.tick(f"{NAME}: train {counted(plain.num_mini_batches)}", number)
                plain.train(number)
            if number == 0:
                clock.note = _busy(trainees)
        warned = caution([trainee.rounds for trainee in trainees])
        return tuple(trainee.result(warned) for trainee in trainees)


def _take_turn(trainee: Trainee, number: int, *, clock: _Clock, write: Callable[[dict[str, Any]], None]) -> None:
    """Predict, write the prediction down, and train; number 0 warms up."""
    clock.tick(f"{trainee.name}: profile and predict", number)
    costs, predicted = trainee.predict(number)
    if number:
        write({"schedule": trainee.name, "round": number, **predicted.note()})
    clock.tick(f"{trainee.name}: train {counted(trainee.graph.program.num_mini_batches)}", number)
    trainee.train(number, costs, predicted)


def _busy(trainees: Sequence[Trainee]) -> str:
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
    return PlainTorch(PlainTraining(recipe), full_sized(endless(recipe, setting.seed)), samples, mini_batches=mini_batches)


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
