"""Units of memory: what is stated, what is derived from it, and what is missing."""

from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from tests.costs.graphs import graph_of
from tests.costs.tables import every_stage


def test_uneven_micro_batches_scale_bytes_too() -> None:
    piece = PieceCosts(forward=1, backward=2, bytes=PieceBytes(activations=10, boundary=1, output=1))
    costs = TableCosts(default=piece, micro_batch_size=2, micro_batch_sizes=(4, 2))
    graph = graph_of("1f1b", 2, 2)
    found, sent = costs.unit_bytes(graph), costs.bytes_of_transfers(graph)

    assert found is not None
    assert found.activations.tolist() == [10, 10]
    assert found.micro_batch_scale is not None
    assert found.micro_batch_scale.tolist() == [2, 1]
    assert sent is not None
    assert sent.tolist() == [2, 1, 2, 1]
    assert costs.micro_batch_samples(graph) == (4, 2)


def test_an_input_is_as_large_as_the_output_before_it_unless_stated() -> None:
    piece = PieceCosts(forward=1, backward=2, bytes=PieceBytes(weights=1, output=30))
    graph = graph_of("gpipe", 2, 1)
    costs = TableCosts(rows=(piece, piece))
    found, sent = costs.unit_bytes(graph), costs.bytes_of_transfers(graph)

    assert found is not None
    assert found.boundary.tolist() == [0, 30]
    assert sent is not None
    assert sent.tolist() == [30, 30]


def test_costs_without_bytes_say_so_by_none() -> None:
    graph = graph_of("gpipe", 2, 1)

    assert every_stage().unit_bytes(graph) is None
    assert every_stage().bytes_of_transfers(graph) is None
    assert every_stage(bytes=PieceBytes(output=1)).unit_bytes(graph) is None


def test_unit_bytes_of_d24_are_those_stated() -> None:
    stated = PieceBytes(weights=100, gradients=100, optimizer=200, activations=10, workspace=30)
    found = every_stage(bytes=stated).unit_bytes(graph_of("1f1b", 4, 8))

    assert found is not None
    assert (found.weights.tolist(), found.gradients.tolist(), found.optimizer.tolist()) == ([100] * 4, [100] * 4, [200] * 4)
    assert (found.activations.tolist(), found.workspace.tolist()) == ([10] * 4, [30] * 4)


def test_unit_bytes_of_d20_hold_the_recomputed_set_besides_the_boundary() -> None:
    found = every_stage(bytes=PieceBytes(boundary=1, activations=10)).unit_bytes(graph_of("gpipe", 4, 8, recompute="always"))

    assert found is not None
    assert (8 * found.boundary + found.recomputed).tolist() == [18] * 4


def test_selective_recomputation_keeps_all_but_what_it_makes_again() -> None:
    stated = PieceBytes(activations=10, activations_selective=6, boundary=1, output=1)
    graph = graph_of("gpipe", 2, 2, recompute="selective,always")
    found = every_stage(recompute_selective=0.5, bytes=stated).unit_bytes(graph)

    assert found is not None
    assert found.boundary.tolist() == [6, 1]
    assert found.recomputed.tolist() == [4, 10]
    assert found.input_gradient.tolist() == [0, 1]  # of the output of the stage before


def test_the_last_stage_needs_no_output() -> None:
    stated = {"weights": 1.0, "gradients": 1.0, "optimizer": 1.0, "activations": 1.0, "boundary": 1.0, "workspace": 0.0}
    first, last = (
        PieceCosts(forward=1, backward=2, update=0, bytes=PieceBytes(**stated, **more)) for more in ({"output": 1.0}, {})
    )

    assert TableCosts(rows=(first, last), transfer=0).notes(graph_of("gpipe", 2, 1)) == ()


def test_what_the_weight_gradient_needs_frees_the_rest_at_the_input_gradient() -> None:
    piece = PieceBytes(activations=10, boundary=1, output=1, activations_weight_grad=4)
    costs = every_stage(bytes=piece)
    never, always = (costs.unit_bytes(graph_of("gpipe", 1, 1, recompute=mode)) for mode in ("never", "always"))

    assert never is not None
    assert always is not None
    assert [never.freed_activations, always.freed_boundary, always.freed_recomputed] == [[6], [0], [10 - (4 - 1)]]


def test_of_a_selective_boundary_the_input_gradient_frees_what_is_not_needed_any_more() -> None:
    """Kept 6, made again 4, W needs 5: 1 of the 6 and all 4 are freed."""
    piece = PieceBytes(activations=10, activations_selective=6, boundary=1, output=1, activations_weight_grad=5)
    found = every_stage(bytes=piece, recompute_selective=1).unit_bytes(graph_of("gpipe", 1, 1, recompute="selective"))

    assert found is not None
    assert [found.freed_boundary, found.freed_recomputed] == [[1], [4]]


def test_where_it_is_not_stated_what_the_weight_gradient_needs_all_is_kept() -> None:
    found = every_stage(bytes=PieceBytes(activations=10, boundary=1, output=1)).unit_bytes(graph_of("gpipe", 1, 1))

    assert found is not None
    assert [found.freed_activations, found.freed_boundary, found.freed_recomputed] == [[0], [0], [0]]
