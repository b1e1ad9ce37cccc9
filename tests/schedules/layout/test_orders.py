"""Orders of a mini-batch as codes, and the programs that repeat them."""

import numpy as np

from schedir.ir.shape import Shape
from schedir.schedules.layout.orders import WHOLE, Way, Ways, codes_of, peak_live, turns_of
from tests.schedules.drawing import coded

STRAIGHT = Ways((Way.straight((0, 1), 2),))
ORDERS = coded("0F0 0I0 0W0 0F1 0I1 0W1", "1F0 1F1 1I0 1I1 1W0 1W1")


def test_every_mini_batch_repeats_the_orders_on_its_own_micro_batches() -> None:
    program = STRAIGHT.program("two", ORDERS, Shape(2, 2, 2, 1))

    assert [" ".join(map(str, order)) for order in program.orders()] == [
        "0F0 0I0 0W0 0F1 0I1 0W1 0F2 0I2 0W2 0F3 0I3 0W3",
        "1F0 1F1 1I0 1I1 1W0 1W1 1F2 1F3 1I2 1I3 1W2 1W3",
    ]
    assert (program.name, program.num_micro_batches, program.num_mini_batches) == ("two", 2, 2)


def test_micro_batches_of_a_second_way_go_on_where_those_of_the_first_end() -> None:
    """Down from device 0, up from device 1: its stages 0 and 1 are places 2 and 3, their backwards 6 and 7."""
    ways = Ways((Way((0, 1), range(1)), Way((1, 0), range(1, 2))))

    program = ways.program("both", [[0, 3, 7, 4], [2, 1, 5, 6]], Shape(2, 2, 1, 2), kinds=WHOLE)

    assert [" ".join(map(str, order)) for order in program.orders()] == ["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"]
    assert (ways.homes, ways.counts) == ((0, 1, 1, 0), (1, 1, 1, 1))


def test_codes_of_a_program_are_those_that_it_repeats() -> None:
    for mini_batches in (1, 3):
        assert codes_of(STRAIGHT.program("two", ORDERS, Shape(2, 2, mini_batches, 1))) == ORDERS


def test_turns_count_how_often_a_number_stood_before() -> None:
    assert turns_of(np.array([7, 3, 7, 7, 3, 1])).tolist() == [0, 0, 1, 2, 1, 0]


def test_an_activation_lives_from_its_forward_to_the_end_of_its_weight_gradient() -> None:
    assert peak_live(ORDERS, 2) == 2
    assert peak_live(coded("0F0 0I0 0F1 0I1 0F2 0W0"), 1) == 3
    assert peak_live(coded("0F0 0I0 0W0 0F1"), 1) == 1
