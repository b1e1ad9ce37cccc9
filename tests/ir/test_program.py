"""Programs as arrays, shown as actions."""

import pytest

from schedir.ir.action import Action, Kind, Overlapped
from schedir.ir.program import Program
from schedir.ir.weights import Rule, WeightRule
from tests.programs import written

F, B = Kind.FORWARD, Kind.BACKWARD


def test_orders_are_shown_as_the_actions_that_were_given() -> None:
    orders = ((Action(0, F, 0), Overlapped(Action(0, F, 1), Action(0, B, 0)), Action(0, B, 1)), (Action(1, F, 0), Action(1, B, 0)))

    program = Program.from_orders("p", orders, num_stages=2, num_micro_batches=2)

    assert program.orders() == orders
    assert program.order(1) == orders[1]
    assert [program.entry(row) for row in range(program.num_entries)] == [entry for order in orders for entry in order]


def test_arrays_and_actions_make_equal_programs() -> None:
    arrays = Program.from_arrays("p", [([F, B], 0, 0), ([F, B], 1, [0, 0])], num_stages=2, num_micro_batches=1)
    actions = Program.from_orders(
        "p", [[Action(0, F, 0), Action(0, B, 0)], [Action(1, F, 0), Action(1, B, 0)]], num_stages=2, num_micro_batches=1
    )

    assert arrays == actions
    assert hash(arrays) == hash(actions)


@pytest.mark.parametrize(
    "other",
    [
        written("0F0 0B0", m=1, n=2),
        written("0F0 0B0", m=2),
        written("0F0 0B0", m=1, stages=2),
        written("0B0 0F0", m=1),
        written("0F0 0B0", m=1, weights=Rule.STASH),
        written("0F0", "0B0", m=1, stages=1),
    ],
)
def test_programs_differ_by_everything_that_they_say(other: Program) -> None:
    assert other != written("0F0 0B0", m=1)


def test_a_program_is_not_equal_to_its_text() -> None:
    program = written("0F0 0B0", m=1)

    assert program != str(program)


def test_its_arrays_cannot_be_written_to() -> None:
    program = written("0F0 (0F1;0B0)OVERLAP_F_B 0B1", m=2)

    for array in (program.kind, program.stage, program.micro_batch, program.device_start, program.pairs.row):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_counts_follow_from_the_shape() -> None:
    program = written("0F0 2F0 2B0 0B0", "1F0 1B0", m=1, n=1, stages=3)

    assert program.num_entries == 6
    assert program.total_micro_batches == 1
    assert program.stages_per_device == 2
    assert program.device_of_entry().tolist() == [0, 0, 0, 0, 1, 1]


def test_a_replicated_stage_counts_once_on_each_of_its_devices() -> None:
    assert written("0F0 0B0", "0F1 0B1", m=2, stages=1).stages_per_device == 1


def test_repr_says_name_shape_and_weights() -> None:
    program = written("0F0 0B0", m=1, weights=WeightRule(Rule.PREDICT, "exact"))

    assert repr(program) == "<Program written: 1 devices, 1 stages, 1 x 1 micro-batches, weights predict>"


def test_columns_are_as_small_as_they_can_be() -> None:
    program = written("0F0 0B0", m=1)

    assert [column.dtype.name for column in (program.kind, program.stage, program.micro_batch)] == ["int8", "int32", "int32"]
