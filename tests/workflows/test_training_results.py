from types import SimpleNamespace
from typing import Any, cast

import pytest

from schedir.workflows.training_results import Spread, judged_round


def a_round(measured: float, predicted: float) -> Any:
    return cast(Any, SimpleNamespace(measured_step_s=measured, predicted_step_s=predicted))


@pytest.mark.parametrize(
    ("measured", "expected"),
    [((3.0, 1.0, 2.0), 2.0), ((4.0, 1.0, 3.0, 2.0), 2.0), ((5.0,), 5.0)],
    ids=["odd", "even: the lower of the middle two", "one"],
)
def test_the_round_of_the_lower_median_measurement_is_judged_whatever_was_predicted(
    measured: tuple[float, ...], expected: float
) -> None:
    rounds = [a_round(step, predicted=9.0 - number) for number, step in enumerate(measured)]

    assert judged_round(rounds).measured_step_s == expected


def test_the_spread_of_a_figure() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 10.0]) == Spread(least=1.0, median=2.5, most=10.0)
