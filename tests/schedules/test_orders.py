"""Orders of a mini-batch and the programs that repeat them."""

from schedir.ir.shape import Shape
from schedir.schedules.orders import orders_of, peak_live, repeated
from tests.schedules.drawing import parsed

ORDERS = parsed("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1I1 1W1")


def test_every_mini_batch_repeats_the_orders_on_its_own_micro_batches() -> None:
    program = repeated("two", ORDERS, Shape(2, 2, 2, 1), num_stages=2)

    assert [" ".join(map(str, order)) for order in program.orders()] == [
        "0F0 0F1 0B0 0B1 0F2 0F3 0B2 0B3",
        "1F0 1B0 1F1 1I1 1W1 1F2 1B2 1F3 1I3 1W3",
    ]
    assert (program.name, program.num_micro_batches, program.num_mini_batches) == ("two", 2, 2)


def test_orders_of_a_program_are_those_that_it_repeats() -> None:
    for mini_batches in (1, 3):
        assert orders_of(repeated("two", ORDERS, Shape(2, 2, mini_batches, 1), num_stages=2)) == ORDERS


def test_an_activation_lives_from_its_forward_to_the_end_of_its_backward_or_weight_gradient() -> None:
    assert peak_live(ORDERS) == 2
    assert peak_live(parsed("0F0 0I0 0F1 0I1 0F2 0W0")) == 3
    assert peak_live(parsed("0F0 0I0 0W0 0F1")) == 1
