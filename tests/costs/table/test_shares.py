"""Costs of stages that hold a share of the work."""

from dataclasses import replace
from fractions import Fraction

import pytest

from schedir.costs.table.meaning import Scaling
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.shares import table_share, uniform_share
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.costs.work import BySize, WorkTime
from schedir.errors import RefusedError

HALF = Fraction(1, 2)


def test_half_of_a_stage_takes_half_as_long_and_sends_as_large_a_message() -> None:
    costs = UniformCosts(forward=3, backward=5, update=1, transfer=0.1, transfer_bytes=800)

    assert uniform_share(costs, HALF) == UniformCosts(forward=1.5, backward=2.5, update=0.5, transfer=0.1, transfer_bytes=800)


def test_times_that_are_not_given_are_shared_out_too() -> None:
    """Nothing given is forward 1 and both halves 1."""
    assert uniform_share(UniformCosts(), HALF) == UniformCosts(forward=0.5, input_grad=0.5, weight_grad=0.5)


def test_the_input_of_a_stage_is_as_large_for_half_of_it() -> None:
    """Of 100 bytes 20 are the stage's input: the half keeps 20 + 80 / 2 = 60, of 50 it keeps 20 + 30 / 2 = 35."""
    amounts = PieceBytes(
        weights=10, gradients=20, optimizer=40, activations=100, activations_weight_grad=50, boundary=20, output=30, workspace=7
    )
    default = PieceCosts(forward=WorkTime(2.0, first=3.0, samples=(2.0, 4.0)), backward=4, update=1, bytes=amounts)
    half = table_share(TableCosts(default=default), HALF).default

    assert half == PieceCosts(
        forward=WorkTime(1.0, first=1.5, samples=(1.0, 2.0)),
        backward=2,
        update=0.5,
        bytes=PieceBytes(
            weights=5, gradients=10, optimizer=20, activations=60, activations_weight_grad=35, boundary=20, output=30, workspace=7
        ),
    )


def test_the_input_is_taken_as_large_as_the_output_where_only_that_is_stated() -> None:
    default = PieceCosts(forward=1, backward=2, bytes=PieceBytes(activations=100, output=40))
    half = table_share(TableCosts(default=default), HALF).default

    assert half is not None
    assert half.bytes == PieceBytes(activations=70, output=40)  # 40 + 60 / 2


def test_tables_by_size_are_read_first() -> None:
    forward = BySize((1, 3), (WorkTime(2.0), WorkTime(6.0)))
    costs = TableCosts(default=PieceCosts(forward=forward, backward=8), micro_batch_size=2, scaling=Scaling.TABLE)
    half = table_share(costs, HALF)

    assert half.default == PieceCosts(forward=2, backward=4)  # 4 at size 2
    with pytest.raises(RefusedError, match="tables by size and micro-batches of several sizes"):
        table_share(replace(costs, micro_batch_sizes=(1, 3)), HALF)


def test_costs_that_differ_from_stage_to_stage_are_refused() -> None:
    plain, large = PieceCosts(forward=1, backward=2), PieceCosts(forward=2, backward=4)

    with pytest.raises(RefusedError, match=r"forward has 2 values, one per stage, .*: give costs per layer"):
        uniform_share(UniformCosts(forward=(1, 2), backward=2), HALF)
    with pytest.raises(RefusedError, match=r"rows of single stages, .*: give costs per layer"):
        table_share(TableCosts(rows=(large,), default=plain), HALF)
    with pytest.raises(RefusedError, match="rows of single stages"):
        table_share(TableCosts(rows=(plain, plain)), HALF)


def test_activations_without_the_input_that_is_part_of_them_are_refused() -> None:
    default = PieceCosts(forward=1, backward=2, bytes=PieceBytes(activations=100))

    with pytest.raises(RefusedError, match=r"bytes.activations of a stage, but not which part .*: give bytes.boundary"):
        table_share(TableCosts(default=default), HALF)
