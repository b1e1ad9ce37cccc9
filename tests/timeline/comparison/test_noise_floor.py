import pytest

from schedir.ir.action import Kind
from schedir.timeline.comparison.noise_floor import noise_floor
from tests.timeline.build import graph_of, run


def test_every_step_is_predicted_by_the_median_of_the_others() -> None:
    """Steps 9, 10, 11: predicted by 10.5, 10 and 9.5; errors 1.5/9, 0 and 1.5/11, whose median is 1.5/11."""
    timeline = run(graph_of("1f1b", 1, 1))

    assert noise_floor([timeline] * 3, [9.0, 10.0, 11.0]) == pytest.approx(1.5 / 11)


def test_one_step_says_nothing_of_noise() -> None:
    assert noise_floor([run(graph_of("1f1b", 2, 2))], [9.0]) is None
    assert noise_floor([run(graph_of("1f1b", 2, 2, num_mini_batches=2))], [9.0]) is None


def test_mini_batches_of_one_run_are_held_against_each_other() -> None:
    """pipedream p=1, F=1 B=2, N=5: a = 0, b = 3; T_n = 3(n + 1), three equal steps."""
    assert noise_floor([run(graph_of("pipedream", 1, 1, num_mini_batches=5))], [3.0]) == 0.0


def test_a_run_that_takes_no_time_has_no_noise_floor() -> None:
    assert noise_floor([run(graph_of("1f1b", 1, 1), dict.fromkeys(Kind, 0.0))] * 2, [0.0, 0.0]) is None
