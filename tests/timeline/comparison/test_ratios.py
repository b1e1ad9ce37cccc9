import numpy as np
import pytest

from schedir.ir.action import Kind
from schedir.timeline.comparison.ratios import Ratio, contention, errors_by_kind, ratios
from tests.timeline.build import graph_of

F, B = int(Kind.FORWARD), int(Kind.BACKWARD)


def test_durations_are_summed_by_kind_and_stage() -> None:
    """1f1b p=2 m=1: tasks 0F0 0B0 0U0 1F0 1B0 1U0; updates take no time."""
    rows = ratios(graph_of("1f1b", 2, 1), np.arange(6), np.array([1.0, 2.0, 0, 1, 2, 0]), measured=np.array([2.0, 2.0, 0, 1, 3, 0]))

    assert rows == (
        Ratio("forward", 0, 1, 1.0, 2.0, 2.0),
        Ratio("forward", 1, 1, 1.0, 1.0, 1.0),
        Ratio("backward", 0, 1, 2.0, 2.0, 1.0),
        Ratio("backward", 1, 1, 2.0, 3.0, 1.5),
    )


def test_errors_by_kind_are_of_the_sums() -> None:
    """forward 2 predicted, 3 measured; backward 4 and 5; an update of 1 that was predicted to be free."""
    rows = (
        Ratio("forward", 0, 1, 1.0, 2.0, 2.0),
        Ratio("forward", 1, 1, 1.0, 1.0, 1.0),
        Ratio("backward", 0, 1, 4.0, 5.0, 1.25),
        Ratio("update", 0, 1, 0.0, 1.0, None),
        Ratio("transfer", 0, 1, 1.0, 0.0, 0.0),
    )

    assert errors_by_kind(rows) == {"forward": pytest.approx(-1 / 3), "backward": pytest.approx(-0.2), "update": -1.0}


def test_what_was_predicted_to_be_free_has_no_ratio() -> None:
    rows = ratios(graph_of("1f1b", 1, 1), np.array([2]), np.array([0.0]), measured=np.array([0.5]))

    assert rows == (Ratio("update", 0, 1, 0.0, 0.5, None),)


def test_tasks_that_slow_each_other_down_are_named() -> None:
    """D25: 0.96 s alone, 1.5 s under load: 1.5625 times."""
    named = contention(np.array([F] * 6), np.array([1.0] * 3 + [1.5 / 0.96] * 3), np.array([1.0] * 3 + [2.0] * 3))

    assert named is not None
    assert named.startswith(
        "contention: tasks take 1.56 times as long while other devices compute as alone (F 1.56): measure the costs"
    )


def test_each_kind_is_held_against_itself() -> None:
    """Backwards have other costs than forwards: only the difference between alone and together counts. 3 F at 1.2, 6 B at 1.5:
    (3 x 1.2 + 6 x 1.5) / 9 = 1.4."""
    kind = np.array([F] * 6 + [B] * 9)
    ratio = np.array([2.0] * 3 + [2.4] * 3 + [1.0] * 3 + [1.5] * 6)
    together = np.array([1.0] * 3 + [3.0] * 3 + [1.0] * 3 + [3.0] * 6)

    named = contention(kind, ratio, together)
    assert named is not None
    assert "1.40 times as long while other devices compute as alone (F 1.20, B 1.50)" in named


def test_costs_that_are_wrong_everywhere_are_no_contention() -> None:
    assert contention(np.array([F] * 6), np.full(6, 2.0), np.array([1.0] * 3 + [2.0] * 3)) is None


def test_a_small_slow_down_is_no_contention() -> None:
    """7 % within a stage is what durations vary by anyway (notes on timelines)."""
    assert contention(np.array([F] * 6), np.array([1.0] * 3 + [1.07] * 3), np.array([1.0] * 3 + [2.0] * 3)) is None


def test_where_no_task_runs_alone_all_being_slower_makes_contention_likely() -> None:
    named = contention(np.array([F] * 6), np.full(6, 1.5), np.full(6, 2.0))

    assert named is not None
    assert named.startswith("contention is likely: tasks take 1.50 times their costs, and 2.0 devices compute at once")


def test_one_device_has_no_contention() -> None:
    assert contention(np.array([F] * 6), np.full(6, 1.5), np.full(6, 1.0)) is None
    assert contention(np.array([], int), np.array([]), np.array([])) is None


def test_first_predictions_that_take_no_time_alone_are_no_contention() -> None:
    """P before any update is the identity: alone, at the start, it takes a thousandth of what it takes later beside others."""
    kinds = np.array([int(Kind.PREDICT)] * 6 + [F] * 6)

    assert contention(kinds, np.array([0.001] * 3 + [1.0] * 9), np.array([1.0] * 3 + [2.0] * 3 + [1.0] * 3 + [2.0] * 3)) is None
