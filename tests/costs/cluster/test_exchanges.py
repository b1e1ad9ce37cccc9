"""How long it takes that devices sum their gradients."""

import pytest

from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.ir.action import Kind
from tests.costs.cluster.clusters import one_host
from tests.costs.graphs import replicated_graph


@pytest.mark.parametrize(("replicas", "expected"), [(2, 3.0 + 1.0), (3, 4.0 + 2.0)])
def test_a_reduction_goes_round_a_ring_of_the_replicas(replicas: int, expected: float) -> None:
    graph = replicated_graph(replicas=replicas)
    piece = PieceCosts(forward=1, backward=2, bytes=PieceBytes(gradients=300, output=1, boundary=1))
    times = one_host(replicas + 1).times(graph, TableCosts(default=piece))

    # 2 (r - 1) / r x 300 bytes / (100 bytes/s) + 2 (r - 1) x 0.5 s
    assert times.duration[graph.kind == Kind.REDUCE] == pytest.approx(expected)


def test_reductions_without_bytes_are_said_to_be_free() -> None:
    graph, costs = replicated_graph(), UniformCosts(transfer_bytes=1)

    assert "gradient reductions over replicas are free: the costs carry no bytes" in one_host(3).notes(graph, costs)
    assert set(one_host(3).times(graph, costs).duration[graph.kind == Kind.REDUCE]) == {0.0}
