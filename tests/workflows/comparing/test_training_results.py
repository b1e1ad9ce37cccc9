from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from schedir.workflows.comparing.training_results import Spread, caution, judged_round, round_words


@dataclass(frozen=True)
class _Round:
    measured_step_s: float
    step_error_fraction: float
    costs: Any
    number: int = 1


def a_round(measured: float, error: float, taken: float = 0.0) -> Any:
    return cast(Any, _Round(measured, error, SimpleNamespace(source={"preempted_fraction": taken})))


@pytest.mark.parametrize(
    ("errors", "expected"),
    # the second: what a newcomer measured, where the round of the median measurement flattered with -1.9 %
    [((0.3, 0.1, 0.2), 0.2), ((-0.455, 0.376, 0.170, -0.019, 0.166), 0.166), ((0.1, -0.3, 0.4, -0.2), -0.2), ((0.5,), 0.5)],
    ids=["odd", "a flattering round beside", "even: the one further off", "one"],
)
def test_the_round_nearest_the_median_error_is_judged_never_a_flattering_one(errors: tuple[float, ...], expected: float) -> None:
    rounds = [a_round(1.0, error) for error in errors]

    assert judged_round(rounds).step_error_fraction == expected


def test_the_words_of_a_round_name_it_and_the_errors_of_all() -> None:
    rounds = [replace(a_round(1.0, error), number=number) for number, error in enumerate((0.3, 0.1, 0.2), 1)]

    assert round_words(rounds[2], rounds) == "round 3 of 3, nearest the median error +20.0 % (+10.0 % to +30.0 %)"
    assert round_words(rounds[0], rounds[:1]) == "the only round"


@pytest.mark.parametrize(
    ("count", "taken", "expected"),
    [
        (1, 0.1, "no conclusion: 1 round"),
        (1, 0.5, "no conclusion: 1 round, machine busy"),
        (2, 0.1, "no conclusion: 2 rounds"),
        (3, 0.1, ""),
        (3, 0.5, "machine busy"),
    ],
)
def test_few_rounds_and_a_busy_machine_allow_no_conclusion(count: int, taken: float, expected: str) -> None:
    calm = [a_round(1.0, 0.0) for _ in range(count)]
    assert caution([calm, [a_round(1.0, 0.0, taken) for _ in range(count)]]) == expected


def test_the_spread_of_a_figure() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 10.0]) == Spread(least=1.0, median=2.5, most=10.0)
