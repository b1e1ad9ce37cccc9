import pytest

from schedir.ir.action import Kind
from schedir.timeline.comparison.noise_floor import noise_floor
from tests.timeline.build import graph_of, recorded, run


def test_every_step_is_predicted_by_the_median_of_the_others() -> None:
    """Steps 9, 10, 11: predicted by 10.5, 10 and 9.5; errors 1.5/9, 0 and 1.5/11, whose median is 1.5/11."""
    timeline = run(graph_of("1f1b", 1, 1))

    assert noise_floor([timeline] * 3, [9.0, 10.0, 11.0]) == pytest.approx(1.5 / 11)


def test_two_steps_are_enough_be_they_shorter_than_a_second() -> None:
    """Each is predicted by the other: errors 2/9 and 2/11, median 20/99."""
    timeline = run(graph_of("1f1b", 1, 1))

    assert noise_floor([timeline] * 2, [0.009, 0.011]) == pytest.approx(20 / 99)


def test_one_step_says_nothing_of_noise() -> None:
    assert noise_floor([run(graph_of("1f1b", 2, 2))], [9.0]) is None
    assert noise_floor([run(graph_of("1f1b", 2, 2, num_mini_batches=2))], [9.0]) is None


def test_mini_batches_of_one_run_are_held_against_each_other() -> None:
    """pipedream p=1, F=1 B=2, N=5: a = 0, b = 3; T_n = 3(n + 1), three equal steps."""
    assert noise_floor([run(graph_of("pipedream", 1, 1, num_mini_batches=5))], [3.0]) == 0.0


def test_a_run_that_takes_no_time_has_no_noise_floor() -> None:
    assert noise_floor([run(graph_of("1f1b", 1, 1), dict.fromkeys(Kind, 0.0))] * 2, [0.0, 0.0]) is None


def test_every_mini_batch_of_the_steady_state_counts_the_last_too() -> None:
    """Three mini-batches end at 3, 12 and 23: steps 9 and 11, each predicted by the other: errors 2/9 and 2/11, median 20/99."""
    spans = {"0F0": (0, 1), "0B0": (1, 3), "0F1": (3, 4), "0B1": (4, 12), "0F2": (12, 13), "0B2": (13, 23)}
    timeline = recorded(graph_of("1f1b", 1, 1, num_mini_batches=3), spans)

    assert noise_floor([timeline], [10.0]) == pytest.approx(20 / 99)


def test_with_replicas_whole_rounds_are_held_against_each_other() -> None:
    """Two replicas run mini-batches 2 and 3, 4 and 5, … side by side: those of a round end when they like. Rounds end 18 and 22
    apart, 9 and 11 a mini-batch."""
    graph = graph_of("pipedream", 3, 1, num_mini_batches=11, replicas=(2, 1))
    spans = {f"0B{j}": (end - 1.0, end) for j, end in ((2, 10.0), (3, 11.0), (4, 28.0), (5, 49.0), (6, 50.0))}

    assert noise_floor([recorded(graph, spans)], [10.0]) == pytest.approx(20 / 99)


def test_a_steady_state_of_which_an_end_is_not_recorded_says_nothing() -> None:
    graph = graph_of("1f1b", 1, 1, num_mini_batches=4)
    assert noise_floor([recorded(graph, {"0B0": (1, 3), "0B1": (4, 12), "0B3": (13, 23)})], [10.0]) is None
