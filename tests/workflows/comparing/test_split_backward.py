"""What splitting a backward costs, by profiles."""

import pytest

from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.workflows.comparing.split_backward import halves_over_whole, split_backward_lines


def profile(*rows: PieceCosts, size: int = 1) -> TableCosts:
    return TableCosts(rows=rows, micro_batch_size=size)


WHOLE = profile(PieceCosts(forward=1, backward=2), PieceCosts(forward=1, backward=3))
"""B takes 5 s on both stages together."""


def test_halves_are_held_against_whole_backwards_of_another_profile_by_the_sample() -> None:
    """I + W: (2 + 2) + (4 + 4) = 12 s for two samples, 6 s for one; B: 5 s for one."""
    halves = profile(PieceCosts(forward=1, input_grad=2, weight_grad=2), PieceCosts(forward=1, input_grad=4, weight_grad=4), size=2)

    assert halves_over_whole([WHOLE, halves]) == pytest.approx(6 / 5)
    (line,) = split_backward_lines({"1f1b": WHOLE, "zb-h1": halves})
    assert line == (
        "zb-h1: the halves of backward, I + W, take 1.20 times as long as the whole one, B, by the profiles: splitting adds "
        "20.0 % to every backward of this model here, which a smaller bubble has to win back first"
    )


def test_halves_that_take_little_more_are_not_mentioned() -> None:
    halves = profile(PieceCosts(forward=1, input_grad=2.5, weight_grad=3))

    assert halves_over_whole([WHOLE, halves]) == pytest.approx(5.5 / 5)
    assert split_backward_lines({"1f1b": WHOLE, "zb-h1": halves}) == []


def test_without_both_there_is_nothing_to_say() -> None:
    assert halves_over_whole([WHOLE]) is None
    assert split_backward_lines({"1f1b": WHOLE}) == []
