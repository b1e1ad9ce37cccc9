import numpy as np
import pytest

from schedir.timeline.comparison.agreement import StartError, concurrency, order_agreement, path_overlap, peak_errors, start_error
from schedir.timeline.settled import settle
from schedir.timeline.timeline import Timeline
from tests.near import near
from tests.timeline.build import graph_of, recorded, run, two_devices_by_hand


def computed(timeline: Timeline) -> np.ndarray:
    return np.flatnonzero(timeline.recorded[: timeline.graph.num_compute_tasks])


def test_starts_are_held_against_the_measured_makespan() -> None:
    """p=1 m=1: B predicted at 1 and measured at 3 of 10 s; F starts both runs."""
    graph = graph_of("1f1b", 1, 1)
    predicted = settle(recorded(graph, {"0F0": (0.0, 1.0), "0B0": (1.0, 3.0)}))
    measured = settle(recorded(graph, {"0F0": (100.0, 103.0), "0B0": (103.0, 110.0)}))

    assert start_error(predicted, measured, np.array([0, 1])) == StartError(near(0.1), near(0.19), near(0.2))


def test_no_common_task_has_no_start_error() -> None:
    settled = settle(two_devices_by_hand())

    assert start_error(settled, settled, np.array([], int)) == StartError(0.0, 0.0, 0.0)


def test_order_agreement_is_the_share_of_pairs_in_the_same_order() -> None:
    """p=1 m=2 is ordered F0 B0 F1 B1; measured F1 before B0: one of six pairs is turned round."""
    graph = graph_of("1f1b", 1, 2)
    predicted = recorded(graph, {"0F0": (0, 1), "0B0": (1, 3), "0F1": (3, 4), "0B1": (4, 6)})
    measured = recorded(graph, {"0F0": (0, 1), "0F1": (1, 2), "0B0": (2, 4), "0B1": (4, 6)})

    assert order_agreement(predicted, measured, computed(predicted)) == (near(5 / 6),)
    assert order_agreement(predicted, predicted, computed(predicted)) == (1.0,)


def test_a_reversed_order_does_not_agree_at_all() -> None:
    graph = graph_of("1f1b", 1, 2)
    predicted = recorded(graph, {"0F0": (0, 1), "0B0": (1, 3), "0F1": (3, 4), "0B1": (4, 6)})
    measured = recorded(graph, {"0B1": (0, 1), "0F1": (1, 2), "0B0": (2, 4), "0F0": (4, 6)})

    assert order_agreement(predicted, measured, computed(predicted)) == (0.0,)


def test_tasks_that_start_together_are_in_the_order_of_their_lane() -> None:
    graph = graph_of("1f1b", 1, 2)
    predicted = recorded(graph, {"0F0": (0, 0), "0B0": (0, 0), "0F1": (0, 1)})

    assert order_agreement(predicted, predicted, computed(predicted)) == (1.0,)


def test_a_device_with_one_task_agrees() -> None:
    measured = recorded(graph_of("1f1b", 2, 1), {"0F0": (0, 1)})

    assert order_agreement(measured, measured, computed(measured)) == (1.0, 1.0)


def test_critical_paths_are_compared_by_their_shares() -> None:
    """1f1b p=2 m=2. Equal stages: 0F0 1F0 1B0 1F1 1B1 0B1, 9 s. Stage 0 four times slower: 0F0 0F1 0B0 0B1, 24 s. In common 0F0
    (1/9 and 4/24) and 0B1 (2/9 and 8/24): (1/9 + 2/9) / (2 - 1/9 - 2/9) = 1/5."""
    graph = graph_of("1f1b", 2, 2)
    equal, slow = settle(run(graph)), settle(run(graph, slower={0: 4.0}))

    assert (equal.makespan, slow.makespan) == (9.0, 24.0)
    assert path_overlap(equal, slow) == pytest.approx(0.2)


def test_a_common_factor_of_all_durations_does_not_change_the_path() -> None:
    graph = graph_of("1f1b", 4, 8)

    assert path_overlap(settle(run(graph)), settle(run(graph, slower=dict.fromkeys(range(4), 3.0)))) == pytest.approx(1.0)


def test_peaks_are_compared_device_by_device() -> None:
    assert peak_errors([110, 100, 80], [100, 0, 100]) == (near(0.1), None, near(-0.2))
    assert peak_errors([None, None], [100, 100]) == ()
    assert peak_errors([100], [None]) == ()


def test_concurrency_counts_the_devices_that_compute_meanwhile() -> None:
    """gpipe p=2 m=2: device 0 F0 [0, 1] alone, F1 [1, 2] beside F0 of device 1; then F1 [2, 3] and B1 [3, 5] on device 1 alone,
    its B0 [5, 7] beside B1 of device 0, B0 [7, 9] alone."""
    settled = settle(run(graph_of("gpipe", 2, 2)))
    graph = settled.graph
    found = {
        f"{graph.label(task)}": value
        for task, value in enumerate(concurrency(settled, np.arange(graph.num_compute_tasks)).tolist())
    }

    assert found == {
        "0F0": 1.0,
        "0F1": 2.0,
        "0B1": 2.0,
        "0B0": 1.0,
        "0U1": 1.0,
        "1F0": 2.0,
        "1F1": 1.0,
        "1B1": 1.0,
        "1B0": 2.0,
        "1U1": 1.0,
    }
