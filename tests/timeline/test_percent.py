"""Percent as everything prints it."""

import math

import pytest

from schedir.timeline.percent import percent, points, signed


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(0.272727, "27.3 %"), (0.0, "0.0 %"), (-0.0, "0.0 %"), (-0.0004, "0.0 %"), (-0.0006, "-0.1 %"), (None, "-")],
)
def test_percent_has_one_digit_and_no_negative_zero(fraction: float | None, expected: str) -> None:
    assert percent(fraction) == expected


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(0.042, "+4.2 %"), (-0.0909, "-9.1 %"), (0.0, "+0.0 %"), (-0.0004, "+0.0 %"), (math.inf, "-")],
)
def test_an_error_has_a_sign_but_zero_is_not_negative(fraction: float, expected: str) -> None:
    assert signed(fraction) == expected


@pytest.mark.parametrize(("difference", "expected"), [(0.0149, "+1.5 points"), (-0.02, "-2.0 points"), (-1e-9, "+0.0 points")])
def test_points_are_of_percent(difference: float, expected: str) -> None:
    assert points(difference) == expected
