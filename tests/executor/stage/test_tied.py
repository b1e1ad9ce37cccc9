"""What a stage gives to the sum of tied weights' gradients, and what it takes of it; parameters are strings here."""

from typing import Any

from executor.stage.tied import TiedPart, without

PART = TiedPart(numbers=(2, -1, 0))
"""Of the tie's three parameters the stage holds the first as its number 2, the last as its number 0."""


def test_a_stage_gives_what_it_holds_by_the_parameters_of_the_tie() -> None:
    gradients: Any = ["a", "b", "c"]

    assert PART.share(gradients) == ["c", None, "a"]


def test_sums_stand_in_the_places_of_its_own_gradients() -> None:
    gradients: Any = ["a", "b", "c"]
    total: Any = ["first", "second", "third"]

    assert PART.merged(gradients, total) == ["third", "b", "first"]
    assert gradients == ["a", "b", "c"]


def test_some_parameters_do_not_count() -> None:
    gradients: Any = ["a", "b", "c"]
    without_two: Any = without(gradients, frozenset({0, 2}))
    with_all: Any = without(gradients, frozenset())

    assert without_two == [None, "b", None]
    assert with_all == ["a", "b", "c"]
