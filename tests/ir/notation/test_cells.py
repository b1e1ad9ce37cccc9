"""Cells of written orders, read strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from schedir.errors import FormatError
from schedir.ir.action import Action, Kind, Overlapped
from schedir.ir.notation.cells import parse_action

NUMBERS = st.integers(0, 999_999_999)


def actions(*kinds: Kind) -> SearchStrategy[Action]:
    return st.builds(Action, NUMBERS, st.sampled_from(kinds), NUMBERS)


@pytest.mark.parametrize(
    ("cell", "action"),
    [
        ("2F0", Action(2, Kind.FORWARD, 0)),
        ("0B17", Action(0, Kind.BACKWARD, 17)),
        ("12I3", Action(12, Kind.INPUT_GRAD, 3)),
        ("1W1", Action(1, Kind.WEIGHT_GRAD, 1)),
        ("0R2", Action(0, Kind.RECOMPUTE, 2)),
        ("0U7", Action(0, Kind.UPDATE, 7)),
        ("(0F3;3B1)OVERLAP_F_B", Overlapped(Action(0, Kind.FORWARD, 3), Action(3, Kind.BACKWARD, 1))),
        ("(0F3;3I1)OVERLAP_F_B", Overlapped(Action(0, Kind.FORWARD, 3), Action(3, Kind.INPUT_GRAD, 1))),
        ("(3B1;0F3)OVERLAP_F_B", Overlapped(Action(0, Kind.FORWARD, 3), Action(3, Kind.BACKWARD, 1))),
    ],
)
def test_a_cell_is_one_action_or_one_pair(cell: str, action: Action | Overlapped) -> None:
    assert parse_action(cell) == action


@given(actions(Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.RECOMPUTE, Kind.UPDATE))
def test_every_action_reads_back(action: Action) -> None:
    assert parse_action(str(action)) == action


@given(actions(Kind.FORWARD), actions(Kind.BACKWARD, Kind.INPUT_GRAD))
def test_every_pair_reads_back(forward: Action, backward: Action) -> None:
    assert parse_action(str(Overlapped(forward, backward))) == Overlapped(forward, backward)


# torch 2.13 accepts the first of these (notes on torch.distributed.pipelining, "defects seen").
@pytest.mark.parametrize(
    "cell",
    ["0F1_oops", "", "F1", "0F", "0X1", "0F1 ", " 0F1", "0f1", "-1F0", "0F-1", "0.5F1", "0F1.0", "٣F0", "0F0,0F1", "0F0;0B1"],
)
def test_what_is_no_action_is_refused_with_the_rule(cell: str) -> None:
    with pytest.raises(FormatError, match=r"write <stage><F, B, I, W, R or U><micro-batch>, like 2F0"):
        parse_action(cell)


@pytest.mark.parametrize(
    "cell", ["(0F1)OVERLAP_F_B", "(0F1;0B0)", "(0F1;0B0)OVERLAP_B_F", "(0F1,0B0)OVERLAP_F_B", "(0F1;0B0;0B1)OVERLAP_F_B"]
)
def test_a_broken_pair_is_refused(cell: str) -> None:
    with pytest.raises(FormatError, match=r"is no action: write .* or \(0F3;3B1\)OVERLAP_F_B"):
        parse_action(cell)


@pytest.mark.parametrize("cell", ["(0F1;1F0)OVERLAP_F_B", "(0B1;1B0)OVERLAP_F_B", "(0F1;1W0)OVERLAP_F_B", "(0F1;1U0)OVERLAP_F_B"])
def test_a_pair_of_other_kinds_is_refused(cell: str) -> None:
    with pytest.raises(FormatError, match="a pair is one F and one B or I"):
        parse_action(cell)


def test_a_prediction_is_refused_with_the_reason() -> None:
    with pytest.raises(FormatError, match=r"'0P1': predictions \(P\) are placed by the weight rule: leave them out"):
        parse_action("0P1")


def test_numbers_that_fit_no_column_are_refused() -> None:
    with pytest.raises(FormatError, match="'0F1234567890' has a number of more than nine digits"):
        parse_action("0F1234567890")
