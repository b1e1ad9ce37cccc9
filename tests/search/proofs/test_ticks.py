"""Seconds as whole ticks: exact where they can be, never too long where they cannot."""

import math

import pytest

from schedir.search.proofs.ticks import ticks_for


def test_times_with_a_common_part_are_exact() -> None:
    ticks = ticks_for([1.0, 0.1, 1 / 3, 0.0, -2.5], whole=40.0)

    assert ticks.exact
    assert [ticks.of(seconds) for seconds in (1.0, 0.1, 1 / 3, -2.5)] == [30, 3, 10, -75]
    assert ticks.seconds(999) == pytest.approx(33.3)


def test_other_times_are_rounded_down() -> None:
    ticks = ticks_for([math.pi, math.sqrt(2)], whole=100.0)

    assert not ticks.exact
    assert ticks.seconds(ticks.of(math.pi)) <= math.pi
    assert ticks.seconds(ticks.of(math.pi)) == pytest.approx(math.pi, rel=1e-4)


def test_bounds_are_rounded_up_where_ticks_are_exact() -> None:
    ticks = ticks_for([0.5], whole=10.0)

    assert [ticks.above(bound) for bound in (3.0, 3.2, 3.5)] == [6, 7, 7]
