"""Intervals hold what they say, on noise whose truth is known: what whole mini-batches have in common, slow or fast.

A profile measures 5 repeats of 2 mini-batches of warm-up before it, its run 8 steps; both slow down by what the machine does in
every mini-batch, exp(level). Between rounds pass 3 mini-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.ir.arrays import Floats
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.schedules.registry import build_program
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Source, Timeline
from schedir.workflows.comparing.drift import Drift, DriftSoFar
from schedir.workflows.comparing.predicting import Prediction, predict_training
from tests.near import near

REPEATS, SKIPPED, STEPS, BETWEEN = 5, 2, 8, 3
ROUNDS = 4
GRAPH = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2, num_mini_batches=STEPS + 1))
SCATTER = 0.01
"""Of every task for itself, beside what its mini-batch has in common."""


def levels(memory: float, size: int, generator: np.random.Generator) -> Floats:
    """Return an AR(1) series of standard deviation 5 %, whose neighbours are correlated by `memory`."""
    found = generator.normal(size=size)
    for index in range(1, size):
        found[index] = memory * found[index - 1] + np.sqrt(1 - memory**2) * found[index]
    return 0.05 * found


def profile(level: Floats, generator: np.random.Generator) -> TableCosts:
    """Return F = 1, B = 2 as measured at these levels, two samples of each repeat."""
    repeats = tuple(np.repeat(np.arange(REPEATS), 2).tolist())

    def time(seconds: float) -> WorkTime:
        samples = seconds * np.exp(level[list(repeats)] + SCATTER * generator.normal(size=len(repeats)))
        return WorkTime(float(np.median(samples)), samples=tuple(samples.tolist()), repeats=repeats)

    rows = tuple(PieceCosts(forward=time(1.0), backward=time(2.0)) for _ in range(2))
    return TableCosts(rows=rows)


def measured_step(level: Floats, generator: np.random.Generator) -> float:
    own = np.zeros(GRAPH.num_tasks)
    compute = slice(0, GRAPH.num_compute_tasks)
    seconds = np.choose(GRAPH.kind[compute], [1.0, 2.0, *[0.0] * 12])
    own[compute] = seconds * np.exp(level[GRAPH.mini_batch[compute]] + SCATTER * generator.normal(size=GRAPH.num_compute_tasks))
    spans = evaluate(GRAPH, TaskTimes(own))
    return step_seconds(Timeline(GRAPH, spans.start, spans.end, Source.MEASURED))


def rounds(memory: float, seed: int) -> Iterator[tuple[TableCosts, float]]:
    """Yield every round's profile and measured step, that of the warm-up first."""
    generator = np.random.default_rng(seed)
    length = SKIPPED + REPEATS + STEPS + 1 + BETWEEN
    series = levels(memory, length * (ROUNDS + 1), generator)
    for begin in range(0, len(series), length):
        run = begin + SKIPPED + REPEATS
        costs = profile(series[begin + SKIPPED : run], generator)
        yield costs, measured_step(series[run : run + STEPS + 1], generator)


def predicted(costs: TableCosts, before: DriftSoFar | None = None) -> Prediction:
    return predict_training(GRAPH, costs, draws=11, seed=0, before=before)


def every_task_for_itself(costs: TableCosts) -> TableCosts:
    """Return the costs as if nothing were known of what was measured together."""

    def alone(row: PieceCosts) -> PieceCosts:
        assert isinstance(row.forward, WorkTime)
        assert isinstance(row.backward, WorkTime)
        return replace(row, forward=replace(row.forward, repeats=()), backward=replace(row.backward, repeats=()))

    return replace(costs, rows=tuple(map(alone, costs.rows)))


def coverage(memory: float, series: int) -> float:
    """Return the share of measured steps inside the interval that was predicted for them; the warm-up is not counted."""
    inside = []
    for seed in range(series):
        before = DriftSoFar()
        for number, (costs, step) in enumerate(rounds(memory, seed)):
            interval = predicted(costs, before).step_interval
            before.follow(GRAPH.program.name, step)
            if number:
                inside.append(interval.holds(step))
    return float(np.mean(inside))


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_nine_of_ten_steps_lie_inside_whether_noise_is_fast_or_slow(memory: float) -> None:
    """96 steps of 24 series: two standard errors of a share of 0.9 are 0.06."""
    assert 0.84 <= coverage(memory, 24) <= 0.97


def test_tasks_that_draw_for_themselves_hold_far_fewer() -> None:
    """The rule that this one replaced: no repeats, no drift."""
    pairs = [pair for seed in range(8) for pair in rounds(0.8, seed)]
    assert np.mean([predicted(every_task_for_itself(costs)).step_interval.holds(step) for costs, step in pairs]) < 0.5


def test_repeats_alone_hold_fewer_than_they_say_where_the_machine_is_slow_to_change() -> None:
    pairs = [pair for seed in range(8) for pair in rounds(0.8, seed)]
    assert np.mean([predicted(costs).step_interval.holds(step) for costs, step in pairs]) < 0.7


def test_drift_is_the_root_mean_square_of_successive_differences() -> None:
    """log 2, then 0, then -log 2: (2 x log(2)²) / 3."""
    before = DriftSoFar()
    for seconds in (1.0, 2.0, 2.0, 1.0):
        before.follow("gpipe", seconds)
    assert before.now() == Drift(near(np.log(2) * np.sqrt(2 / 3)), 3)


def test_the_variance_of_draws_is_not_counted_twice() -> None:
    before = DriftSoFar()
    before.follow("gpipe", 1.0, variance=0.03)
    before.follow("gpipe", float(np.exp(0.2)))
    assert before.now() == Drift(near(np.sqrt(0.2**2 - 0.03)), 1)


def test_draws_that_explain_every_difference_leave_no_drift() -> None:
    before = DriftSoFar()
    before.follow("gpipe", 1.0, variance=0.5)
    before.follow("gpipe", 1.1)
    assert before.now() == Drift(0.0, 1)


def test_one_profile_that_scatters_widely_hides_no_drift() -> None:
    """log 1.2 between each, which the second profile's draws explain many times over: half of the mean square stays."""
    before = DriftSoFar()
    for schedule, variance in (("gpipe", 0.0), ("xpipe", 5.0)):
        before.follow(schedule, 1.0, variance)
        before.follow(schedule, 1.2)
    assert before.now() == Drift(near(np.log(1.2) / np.sqrt(2)), 2)


def test_differences_are_those_of_one_schedule_and_drift_is_that_of_all() -> None:
    before = DriftSoFar()
    for schedule, seconds in (("gpipe", 1.0), ("xpipe", 5.0), ("gpipe", 1.1), ("xpipe", 5.5)):
        before.follow(schedule, seconds)
    assert before.now() == Drift(near(np.log(1.1)), 2)


def test_nothing_measured_adds_nothing() -> None:
    before = DriftSoFar()
    before.follow("gpipe", 1.0, variance=0.1)
    assert before.now() == Drift(0.0, 0)
    draws = np.array([0.1, 0.2])
    assert before.now().spread(draws, seed=0).tolist() == [0.1, 0.2]


def test_few_differences_make_a_wide_interval() -> None:
    """95 % quantiles of Student's t: 2.92 for 2 degrees of freedom, 1.66 for 100."""
    ends = [float(np.quantile(Drift(0.1, count).spread(np.zeros(2000), seed=1), 0.95)) for count in (3, 150)]
    assert ends == pytest.approx([0.292, 0.166], rel=0.05)
