"""What `schedir search` says of a found order beside the best registered one."""

from dataclasses import replace

import pytest

from schedir.cli.screen.search_text import summary
from schedir.search.search import search_order
from tests.search.problems import problem_of


@pytest.mark.parametrize(
    ("value", "change"),
    [(95.0, "-5.0 %"), (99.9, "-0.1 %"), (99.99, "-0.01 %"), (99.9909, "-0.0091 %"), (99.99999, "-1e-05 %")],
)
def test_a_found_order_that_is_little_shorter_is_never_0_percent_shorter(value: float, change: str) -> None:
    problem = problem_of(2, 2)
    found = search_order(problem, iterations=10)
    shorter = replace(found, best=replace(found.best, value=value), registered=replace(found.best, value=100.0))

    assert dict(summary(shorter, problem))["registered"].endswith(f", 100 s: the found order is {change}")


def test_where_the_registered_one_is_best_nothing_shorter_was_found() -> None:
    problem = problem_of(2, 2)
    found = search_order(problem, iterations=10)

    assert found.best is found.registered
    assert dict(summary(found, problem))["registered"].endswith("nothing shorter was found")
