"""What a table leaves free or out is said."""

from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from tests.costs.graphs import continuous_graph, graph_of, replicated_graph
from tests.costs.tables import every_stage


def test_the_notes_say_what_is_free_or_left_out() -> None:
    graph = continuous_graph("xpipe", 2, 1, mini_batches=3)

    assert every_stage().notes(graph) == (
        "transfers are free: the costs table states no transfer latency, and neither --transfer nor --cluster was given",
        "updates are free: the costs table states no update time",
        "predictions are free: the costs table states no predict time",
        "memory is not computed: the costs table states no bytes of weights, gradients, optimizer or activations",
    )
    full = PieceBytes(weights=1, gradients=1, optimizer=1, activations=1, boundary=1, output=1, workspace=0)
    stated = TableCosts(default=PieceCosts(forward=1, backward=2, update=0, predict=0, bytes=full), transfer=0)
    assert stated.notes(graph) == ()


def test_the_notes_say_which_bytes_are_missing() -> None:
    graph = graph_of("gpipe", 2, 1)
    partly = every_stage(update=0, bytes=PieceBytes(weights=1, activations=1, boundary=1, output=1))

    assert partly.notes(graph, has_cluster=True) == (
        "memory is too low: the costs table states no bytes of gradients, optimizer, workspace for every stage",
    )
    selective = graph_of("gpipe", 2, 1, recompute="selective")
    assert partly.notes(selective, has_cluster=True) == (
        "memory is not computed: the costs table states no bytes.activations_selective, which selective recomputation keeps",
    )


def test_reductions_over_replicas_without_a_cluster_are_said_to_be_free() -> None:
    assert "gradient reductions over replicas are free: no --cluster was given" in every_stage().notes(replicated_graph())
