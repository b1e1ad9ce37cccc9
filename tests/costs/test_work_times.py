"""Times of work before there is a graph: by kind and stage, and for the work of a program."""

import numpy as np

from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.costs.work import WorkTime
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program


def test_uniform_costs_state_the_same_for_every_micro_batch() -> None:
    program = build_program("zb-h1", num_devices=3, num_micro_batches=2)
    times = UniformCosts(forward=[1.0, 2.0, 3.0], input_grad=4.0, weight_grad=5.0, transfer=[0.1, 0.2, 0.3]).work_times(program)

    assert times.typical(Kind.FORWARD) == [1, 2, 3]
    assert times.typical(Kind.WEIGHT_GRAD) == [5, 5, 5]
    assert times.transfer.tolist() == [0.1, 0.2, 0.3]
    assert times.gap == 0


def test_transfers_that_are_not_stated_take_nothing() -> None:
    assert UniformCosts().work_times(build_program("zb-h1", num_devices=2, num_micro_batches=1)).transfer.tolist() == [0, 0]


def test_typical_is_the_mean_over_the_sizes_of_a_mini_batch() -> None:
    program = build_program("zb-h1", num_devices=1, num_micro_batches=3)

    assert UniformCosts(micro_batch_sizes=(1, 1, 4)).work_times(program).typical(Kind.FORWARD) == [2]


def test_the_first_of_its_kind_in_a_mini_batch_takes_its_own_time() -> None:
    piece = PieceCosts(forward=WorkTime(1.0, 3.0), input_grad=WorkTime(2.0), weight_grad=WorkTime(2.0))
    program = build_program("zb-h1", num_devices=1, num_micro_batches=2, num_mini_batches=2)
    times = TableCosts(rows=(piece,)).work_times(program)
    forwards = np.flatnonzero(program.kind == Kind.FORWARD)

    seconds = times.of((program.kind, program.stage, program.micro_batch), num_micro_batches=2)

    assert seconds[forwards].tolist() == [3, 1, 3, 1]


def test_a_gap_stands_before_what_takes_time() -> None:
    costs = TableCosts(rows=(PieceCosts(forward=1.0, input_grad=1.0, weight_grad=1.0),), dispatch_gap_s=0.5)
    times = costs.work_times(build_program("zb-h1", num_devices=1, num_micro_batches=1))

    assert times.gaps(np.array([0.0, 2.0])).tolist() == [0, 0.5]
