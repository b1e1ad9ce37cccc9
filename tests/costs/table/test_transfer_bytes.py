"""What transfers carry."""

import pytest

from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.errors import ArgumentError
from tests.costs.graphs import graph_of


def test_bytes_of_a_transfer_are_the_senders_output_or_its_inputs_gradient() -> None:
    first = PieceCosts(forward=1, backward=2, bytes=PieceBytes(output=30, boundary=7))
    second = PieceCosts(forward=1, backward=2, bytes=PieceBytes(boundary=20))
    graph = graph_of("gpipe", 2, 1)

    found = TableCosts(rows=(first, second)).bytes_of_transfers(graph)

    assert found is not None
    assert found.tolist() == [30, 30]  # stage 0's output on link 0->1, its gradient on link 1->0


def test_an_output_is_as_large_as_the_input_behind_it_unless_stated() -> None:
    rows = (PieceCosts(forward=1, backward=2), PieceCosts(forward=1, backward=2, bytes=PieceBytes(boundary=20)))
    found = TableCosts(rows=rows).bytes_of_transfers(graph_of("gpipe", 2, 1))

    assert found is not None
    assert found.tolist() == [20, 20]


def test_bytes_that_only_some_senders_state_are_refused() -> None:
    known = PieceCosts(forward=1, backward=2, bytes=PieceBytes(output=30))
    unknown = PieceCosts(forward=1, backward=2)

    with pytest.raises(ArgumentError, match=r"stage 1 does not state bytes\.output, others do: give it"):
        TableCosts(rows=(known, unknown, unknown)).bytes_of_transfers(graph_of("gpipe", 3, 1))
