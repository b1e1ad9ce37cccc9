"""Costs per layer, and cuts of the layers into stages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.costs.table.cuts import even_split
from schedir.costs.table.meaning import Granularity
from schedir.costs.table.pieces import PieceBytes, PieceCosts, as_stage
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from tests.costs.graphs import graph_of, seconds_of, split_graph


def layer(name: str, forward: float, **values: Any) -> PieceCosts:
    return PieceCosts(name=name, forward=forward, **{"backward": 2 * forward, **values})


def layers(*rows: PieceCosts, cut: tuple[int, ...] | None = None) -> TableCosts:
    return TableCosts(rows=rows, granularity=Granularity.LAYER, layers_per_stage=cut)


def test_a_stage_takes_as_long_as_its_layers_together() -> None:
    costs = layers(layer("a", 1), layer("b", 2), layer("c", 4)).cut((1, 2))
    graph = graph_of("gpipe", 2, 1)

    assert [seconds_of(graph, costs, Kind.FORWARD, stage=stage) for stage in (0, 1)] == [[1], [6]]
    assert [seconds_of(graph, costs, Kind.BACKWARD, stage=stage) for stage in (0, 1)] == [[2], [12]]
    assert costs.stage_layers(2) == (("a",), ("b", "c"))
    assert costs.describe(graph)["layers"] == [["a"], ["b", "c"]]


def test_weights_of_uneven_stages_are_their_own_and_not_the_average() -> None:
    def of(weights: float) -> PieceBytes:  # Adam: gradients once, states twice the weights
        return PieceBytes(weights=weights, gradients=weights, optimizer=2 * weights)

    rows = [layer("embedding", 1, bytes=of(500)), *(layer(f"layer {k}", 1, bytes=of(1000)) for k in range(8))]
    costs = layers(*rows, layer("head", 1, bytes=of(500)), cut=(2, 2, 2, 4))  # D23: 1, 2, 2, 3 layers
    found = costs.unit_bytes(graph_of("1f1b", 4, 4))

    assert found is not None
    assert found.weights.tolist() == [1500, 2000, 2000, 3500]
    assert (found.weights + found.gradients + found.optimizer).max() == 14000


def test_a_stage_keeps_its_first_layers_input_and_sends_its_last_layers_output() -> None:
    first = PieceBytes(activations=10, boundary=1, output=2, workspace=5)
    second = PieceBytes(activations=20, boundary=2, output=3, workspace=4)

    found = as_stage([layer("a", 1, bytes=first), layer("b", 1, bytes=second)]).bytes

    assert found == PieceBytes(activations=30, boundary=1, output=3, workspace=5)


def test_a_layer_without_attention_keeps_everything_in_selective_recomputation() -> None:
    plain = layer("embedding", 1, bytes=PieceBytes(activations=10))
    attention = layer("block", 2, recompute_selective=0.5, bytes=PieceBytes(activations=20, activations_selective=12))

    stage = as_stage([plain, attention])

    assert stage.bytes.activations_selective == 22
    assert stage.recompute_selective == WorkTime(0.5)


def test_a_layer_that_does_not_say_what_its_weight_gradients_need_keeps_everything_until_then() -> None:
    unknown = layer("embedding", 1, bytes=PieceBytes(activations=10))
    known = layer("block", 2, bytes=PieceBytes(activations=20, activations_weight_grad=6))

    assert as_stage([unknown, known]).bytes.activations_weight_grad == 16
    assert as_stage([unknown, unknown]).bytes.activations_weight_grad is None


def test_a_stage_has_halves_only_where_all_its_layers_have() -> None:
    split = layer("a", 1, weight_grad=0.75)
    whole = layer("b", 1)

    assert as_stage([split, split]).time_of(Kind.WEIGHT_GRAD) == WorkTime(1.5)
    assert as_stage([split, split]).time_of(Kind.INPUT_GRAD) == WorkTime(0.0)
    assert as_stage([split, whole]).time_of(Kind.WEIGHT_GRAD) is None
    with pytest.raises(ArgumentError, match="does not state the halves of stage 0"):
        layers(split, whole, cut=(2,)).times(split_graph())


def test_an_update_that_some_layers_do_not_have_is_that_of_the_others() -> None:
    assert as_stage([layer("a", 1), layer("b", 1, update=0.25)]).update == WorkTime(0.25)


def test_firsts_and_samples_of_layers_add_up() -> None:
    slow = layer("a", 1, backward=1, recompute=WorkTime(0.5, samples=(0.5,)))
    rows = [layer("a", 1), slow]
    times = [WorkTime(1, first=2, samples=(1, 1.5, 2)), WorkTime(3, samples=(3, 4))]

    stage = as_stage([layer("a", 0), layer("b", 0)])
    assert stage.forward == WorkTime(0.0)
    measured = as_stage([PieceCosts(forward=time, backward=1) for time in times])
    assert measured.forward == WorkTime(4, first=5, samples=(4, 5.5))
    assert as_stage(rows).recompute == WorkTime(1.5, samples=(1.5,))


def test_samples_of_layers_add_up_within_the_repeats_that_all_have() -> None:
    one = WorkTime(1, samples=(1, 2, 3, 4, 5), repeats=(0, 0, 1, 2, 2))
    other = WorkTime(10, samples=(10, 30, 40, 50), repeats=(0, 1, 3, 3))
    stage = as_stage([PieceCosts(forward=time, backward=1) for time in (one, other)])
    assert stage.forward == WorkTime(11, samples=(11, 33), repeats=(0, 1))


def test_samples_of_layers_without_repeats_add_up_in_order() -> None:
    one, other = WorkTime(1, samples=(1, 2), repeats=(0, 1)), WorkTime(10, samples=(10, 20))
    assert as_stage([PieceCosts(forward=time, backward=1) for time in (one, other)]).forward == WorkTime(11, samples=(11, 22))


def test_layers_without_a_cut_are_refused_with_an_even_one() -> None:
    costs = layers(*(layer(f"{k}", 1) for k in range(10)))

    with pytest.raises(
        ArgumentError, match="has costs of 10 layers, but no cut into 4 stages: give layers per stage, such as 3,3,2,2"
    ):
        costs.times(graph_of("1f1b", 4, 4))


@pytest.mark.parametrize(
    ("cut", "line"),
    [
        ((3, 4), "layers_per_stage sums to 7 layers, but the costs have 8: share out all of them"),
        ((8, 0), "layers_per_stage 0 must be an integer of at least 1"),
        ((2, 2, 2, 2), "layers_per_stage has 4 values, but the schedule has 2 stages: give one for each"),
    ],
)
def test_a_cut_that_does_not_fit_is_refused(cut: tuple[int, ...], line: str) -> None:
    with pytest.raises(ArgumentError, match=line):
        layers(*(layer(f"{k}", 1) for k in range(8))).cut(cut).times(graph_of("1f1b", 2, 2))


def test_fewer_layers_than_stages_are_refused() -> None:
    with pytest.raises(ArgumentError, match="3 layers cannot fill 4 stages: use at most 3 stages"):
        even_split(3, 4)


@given(st.integers(1, 60), st.integers(1, 60))
def test_an_even_split_shares_out_all_layers_evenly(num_stages: int, more: int) -> None:
    counts = even_split(num_stages + more - 1, num_stages)

    assert sum(counts) == num_stages + more - 1
    assert len(counts) == num_stages
    assert max(counts) - min(counts) <= 1
