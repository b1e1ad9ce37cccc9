"""What a table does not state is refused where a graph asks for it."""

import pytest

from schedir.costs.model import Basis
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from tests.costs.graphs import graph_of, seconds_of, split_graph
from tests.costs.tables import every_stage


def test_a_split_backward_without_halves_is_refused() -> None:
    line = "zb-h1 splits backward, but the costs table does not state the halves of stage 0: give input_grad and weight_grad"

    with pytest.raises(ArgumentError, match=line):
        every_stage().times(split_graph())


def test_where_the_costs_were_measured_the_refusal_says_how_to_measure_the_halves() -> None:
    measured = TableCosts(default=PieceCosts(forward=1, backward=2), basis=Basis.MEASURED)
    line = r"give input_grad and weight_grad \(schedir profile --split-backward measures them\)$"

    with pytest.raises(ArgumentError, match=line):
        measured.times(split_graph())


def test_selective_recomputation_takes_what_is_stated_or_is_refused() -> None:
    graph = graph_of("gpipe", 2, 1, recompute="selective,always")

    assert seconds_of(graph, every_stage(recompute_selective=0.25), Kind.RECOMPUTE, stage=0) == [0.25]
    assert seconds_of(graph, every_stage(recompute_selective=0.25), Kind.RECOMPUTE, stage=1) == [1.0]
    with pytest.raises(RefusedError, match=r"does not state recompute_selective of stage 0: give it, or use recompute always"):
        every_stage().times(graph)
