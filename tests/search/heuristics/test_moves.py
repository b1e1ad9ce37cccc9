"""Shifts of parts of an order: where they may go, and where not."""

import random

import pytest

from schedir.ir.action import Kind
from schedir.search.heuristics.moves import Rules, Shift, draw_joining, draw_shift
from schedir.search.problem.work import Numbering, Order

NUMBERING = Numbering(num_stages=1, num_micro_batches=2)
F0, F1, B0, B1, I0, I1, W0, W1 = range(8)


def test_numbers_are_those_of_kind_stage_and_micro_batch() -> None:
    assert NUMBERING.of(Kind.INPUT_GRAD, 0, 1) == I1
    assert NUMBERING.work(W1) == (Kind.WEIGHT_GRAD, 0, 1)


@pytest.mark.parametrize(
    ("shift", "moved"),
    [
        (Shift(1, 1, 1), [F0, I0, F1, W0, I1, W1]),
        (Shift(1, 1, 2), [F0, I0, W0, F1, I1, W1]),
        (Shift(4, 1, -1), [F0, F1, I0, I1, W0, W1]),
        (Shift(2, 2, -1), [F0, I0, W0, F1, I1, W1]),
    ],
)
def test_parts_move_past_other_work(shift: Shift, moved: Order) -> None:
    order = [F0, F1, I0, W0, I1, W1]

    assert Rules(NUMBERING).allow(order, shift)
    assert shift.applied(order) == moved


@pytest.mark.parametrize(
    "shift",
    [
        Shift(0, 1, 1),  # past the next forward of its stage
        Shift(1, 1, 3),  # past its own input gradient
        Shift(3, 1, -1),  # before its own input gradient
        Shift(0, 1, -1),  # out of the order
        Shift(5, 1, 1),
    ],
)
def test_parts_do_not_pass_their_own_work_or_leave_the_order(shift: Shift) -> None:
    assert not Rules(NUMBERING).allow([F0, F1, I0, W0, I1, W1], shift)


def test_backwards_are_joined_and_taken_apart() -> None:
    found = {tuple(draw_joining([[F0, F1, I0, B1, W0]], NUMBERING, random.Random(seed))[1]) for seed in range(20)}

    assert found == {(F0, F1, B0, B1), (F0, F1, I0, I1, W0, W1)}


def test_drawn_shifts_begin_within_the_order() -> None:
    generator = random.Random(0)
    drawn = [draw_shift([F0, I0, W0], place, generator) for place in range(3) for _ in range(100)]

    assert {shift.first for shift in drawn} == {0, 1, 2}
    assert all(shift.first + shift.length <= 3 and shift.by for shift in drawn)
