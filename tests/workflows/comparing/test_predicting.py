from collections.abc import Hashable
from dataclasses import replace
from math import log
from statistics import median, pvariance

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from schedir.timeline.metrics.metrics import metrics
from schedir.workflows.comparing.drift import DriftSoFar
from schedir.workflows.comparing.predicting import Interval, drawn_anew, predict_training
from tests.near import near

SAMPLES = (0.9, 1.0, 1.0, 1.1, 1.5)


def graph(num_mini_batches: int = 6) -> TaskGraph:
    return compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2, num_mini_batches=num_mini_batches))


def costs(*samples: float) -> TableCosts:
    row = PieceCosts(forward=WorkTime(1.0, samples=samples), backward=WorkTime(2.0, samples=tuple(2 * each for each in samples)))
    return TableCosts(rows=(row, row))


@pytest.mark.parametrize("num_mini_batches", [1, 6])
def test_step_and_bubble_are_those_of_the_metrics(num_mini_batches: int) -> None:
    found = predict_training(graph(num_mini_batches), costs(*SAMPLES), draws=1, seed=4)
    figures = metrics(found.timeline)

    assert found.step_s == pytest.approx(figures.step_s)
    bubble = figures.bubble_fraction if figures.steady is None else figures.steady.bubble_fraction
    assert found.bubble_fraction == pytest.approx(bubble)


def test_equal_samples_predict_one_number_and_an_interval_of_no_width() -> None:
    """1f1b p=2 m=2 with F=1, B=2: (m + p - 1)(F + B) = 9 s, idle (p - 1)(F + B) = 3 s of them on each device."""
    found = predict_training(graph(), costs(1.0, 1.0), draws=5, seed=0)

    assert (found.step_s, found.step_interval) == (near(9.0), Interval(near(9.0), near(9.0)))
    assert found.bubble_fraction == pytest.approx(1 / 3)
    assert found.bubble_interval.holds(found.bubble_fraction)


def test_the_prediction_is_the_median_draw_and_the_interval_holds_nine_of_ten() -> None:
    draws = [predict_training(graph(), costs(*SAMPLES), draws=1, seed=seed).step_s for seed in range(41)]
    found = predict_training(graph(), costs(*SAMPLES), draws=41, seed=0)

    assert found.step_s == sorted(draws)[20]
    assert sum(map(found.step_interval.holds, draws)) == 37  # all but two at each end
    assert found.step_interval.low < found.step_s < found.step_interval.high


def test_a_profile_of_few_samples_is_trusted_less() -> None:
    few, many = (predict_training(graph(24), costs(*SAMPLES * times), draws=61, seed=3) for times in (1, 40))

    assert many.step_interval.high - many.step_interval.low < 0.6 * (few.step_interval.high - few.step_interval.low)


def test_samples_are_drawn_anew_and_single_numbers_stay() -> None:
    row = replace(costs(*SAMPLES).rows[0], update=0.5)
    drawn = drawn_anew(TableCosts(rows=(row, row)), seed=1)

    for found in drawn.rows:
        assert isinstance(found.forward, WorkTime)
        assert len(found.forward.samples) == len(SAMPLES)
        assert set(found.forward.samples) <= set(SAMPLES)
        assert found.forward.median == 1.0
        assert found.update == row.update
    assert drawn.rows[0] != drawn.rows[1]
    assert drawn == drawn_anew(TableCosts(rows=(row, row)), seed=1)


def test_repeats_are_drawn_whole_and_the_same_for_all_stages() -> None:
    repeats = (0, 0, 1, 2, 2)
    time = WorkTime(1.0, samples=(1.0, 1.1, 2.0, 3.0, 3.1), repeats=repeats)
    row = PieceCosts(forward=time, backward=time.scaled(10.0))
    whole = {(1.0, 1.1), (2.0,), (3.0, 3.1)}
    for seed in range(8):
        one, other = drawn_anew(TableCosts(rows=(row, row)), seed).rows
        assert one == other
        assert isinstance(one.forward, WorkTime)
        assert isinstance(one.backward, WorkTime)
        found = [tuple(s for s, r in zip(one.forward.samples, one.forward.repeats, strict=True) if r == n) for n in range(3)]
        assert set(found) <= whole
        assert one.backward == one.forward.scaled(10.0) or one.backward.samples == pytest.approx(
            [10 * sample for sample in one.forward.samples]
        )


def test_drift_widens_the_interval_of_the_step_alone() -> None:
    before = DriftSoFar()
    for seconds in (9.0, 10.0, 9.0, 10.0):
        before.follow("1f1b", seconds)
    alone = predict_training(graph(), costs(*SAMPLES), draws=21, seed=0)
    drifting = predict_training(graph(), costs(*SAMPLES), draws=21, seed=0, before=before)

    assert (drifting.step_s, drifting.bubble_interval, drifting.step_draws) == (
        alone.step_s,
        alone.bubble_interval,
        alone.step_interval,
    )
    assert drifting.drift.differences == 4
    assert drifting.step_interval.low < 0.9 * alone.step_interval.low
    assert drifting.step_interval.high > 1.1 * alone.step_interval.high


def test_the_ends_of_an_interval_are_inside() -> None:
    assert Interval.of([float(value) for value in np.arange(101)]) == Interval(near(5.0), near(95.0))
    assert [Interval(1.0, 2.0).holds(value) for value in (0.9, 1.0, 2.0, 2.1)] == [False, True, True, False]


def test_of_an_even_number_of_draws_it_is_the_lower_of_the_two_in_the_middle() -> None:
    draws = [predict_training(graph(), costs(*SAMPLES), draws=1, seed=seed).step_s for seed in range(4)]
    assert len(set(draws)) == 4

    assert predict_training(graph(), costs(*SAMPLES), draws=4, seed=0).step_s == sorted(draws)[1]


class Noted(DriftSoFar):
    """Writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Hashable, float, float]] = []

    def follow(self, schedule: Hashable, seconds: float, variance: float = 0.0) -> None:
        self.told.append((schedule, seconds, variance))


def test_drift_hears_of_the_median_of_the_draws_and_of_the_variance_of_their_logarithms() -> None:
    """What draws scatter by themselves is no drift: without the variance it would count twice."""
    draws = [predict_training(graph(), costs(*SAMPLES), draws=1, seed=seed).step_s for seed in range(6)]
    before = Noted()
    predict_training(graph(), costs(*SAMPLES), draws=6, seed=0, before=before)

    assert before.told == [("1f1b", near(median(draws)), near(pvariance(map(log, draws))))]


def test_repeats_are_drawn_with_replacement() -> None:
    """Of three repeats a draw leaves some out and has others twice; each comes first as often as any other, nearly."""
    time = WorkTime(1.0, samples=(1.0, 2.0, 3.0), repeats=(0, 1, 2))
    table = TableCosts(rows=(PieceCosts(forward=time, backward=2.0),))
    drawn = []
    for seed in range(200):
        forward = drawn_anew(table, seed).rows[0].forward
        assert isinstance(forward, WorkTime)
        drawn.append(forward.samples)

    assert {len(set(samples)) for samples in drawn} == {1, 2, 3}
    assert all(40 < sum(samples[0] == value for samples in drawn) < 100 for value in (1.0, 2.0, 3.0))


def test_the_repeats_of_a_draw_are_counted_from_0_in_the_order_in_which_they_were_drawn() -> None:
    """Drawn twice they are two repeats; a time without a sample of one of them leaves it out."""
    whole = WorkTime(1.0, samples=(1.0, 1.1, 2.0), repeats=(0, 0, 1))
    part = WorkTime(1.0, samples=(7.0,), repeats=(1,))
    table = TableCosts(rows=(PieceCosts(forward=whole, backward=part),))
    seen = set()
    for seed in range(20):
        (row,) = drawn_anew(table, seed).rows
        assert isinstance(row.forward, WorkTime)
        assert isinstance(row.backward, WorkTime)
        seen.add((row.forward.samples, row.forward.repeats, row.backward.samples, row.backward.repeats))

    zero, one = (1.0, 1.1), (2.0,)
    assert seen == {
        (zero + zero, (0, 0, 1, 1), (7.0,), ()),  # of neither draw a sample: it stands for each
        (zero + one, (0, 0, 1), (7.0,), (1,)),
        (one + zero, (0, 1, 1), (7.0,), (0,)),
        (one + one, (0, 1), (7.0, 7.0), (0, 1)),
    }
