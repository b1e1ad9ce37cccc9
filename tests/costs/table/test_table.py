"""Costs per stage: what is looked up where, what is derived, what is refused. D… are the known problems."""

import json
import math
from typing import Any

import pytest

from schedir.costs.model import Basis
from schedir.costs.table.meaning import Granularity, Scaling
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.transfers import transfers
from schedir.costs.work import BySize, WorkTime
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from tests.costs.graphs import (
    continuous_graph,
    graph_of,
    halved_graph,
    makespan,
    overlapped_graph,
    seconds_of,
    split_graph,
)
from tests.costs.tables import every_stage


def test_a_row_per_stage_gives_its_stage_its_times() -> None:
    costs = TableCosts(rows=(PieceCosts(forward=1, backward=2), PieceCosts(forward=3, backward=4, recompute=5)))
    graph = graph_of("gpipe", 2, 1, recompute="always")

    assert [seconds_of(graph, costs, Kind.FORWARD, stage=stage) for stage in (0, 1)] == [[1], [3]]
    assert [seconds_of(graph, costs, Kind.BACKWARD, stage=stage) for stage in (0, 1)] == [[2], [4]]
    assert [seconds_of(graph, costs, Kind.RECOMPUTE, stage=stage) for stage in (0, 1)] == [[1], [5]]


@pytest.mark.parametrize(("name", "expected"), [("1f1b", 55), ("gpipe", 57)])
def test_one_slow_stage_parts_gpipe_from_1f1b(name: str, expected: float) -> None:
    fast, slow = PieceCosts(forward=1, backward=2), PieceCosts(forward=2, backward=4)  # D30

    assert makespan(graph_of(name, 4, 8), TableCosts(rows=(fast, fast, slow, fast))) == expected


def test_stages_behind_the_last_row_have_the_default() -> None:
    costs = TableCosts(rows=(PieceCosts(forward=9, backward=2),), default=PieceCosts(forward=1, backward=2))
    graph = graph_of("gpipe", 3, 1)

    assert [seconds_of(graph, costs, Kind.FORWARD, stage=stage) for stage in range(3)] == [[9], [1], [1]]


def test_a_backward_left_out_is_the_sum_of_its_halves() -> None:
    assert set(
        seconds_of(graph_of("gpipe", 1, 2), every_stage(backward=None, input_grad=1.5, weight_grad=0.25), Kind.BACKWARD)
    ) == {1.75}


def test_a_half_left_out_beside_the_other_takes_no_time() -> None:
    costs = every_stage(weight_grad=0.7)  # the first stage sends no gradient back

    assert seconds_of(split_graph(), costs, Kind.INPUT_GRAD) == [0, 0]
    assert seconds_of(split_graph(), costs, Kind.WEIGHT_GRAD) == [0.7, 0.7]


def test_an_overlapped_pair_takes_what_is_stated_or_its_two_actions() -> None:
    assert seconds_of(overlapped_graph(), every_stage(overlapped=2.5), Kind.OVERLAPPED) == [2.5]
    assert seconds_of(overlapped_graph(), every_stage(), Kind.OVERLAPPED) == [3.0]


def test_the_first_of_each_mini_batch_is_slower_on_its_stage() -> None:
    costs = every_stage(forward=WorkTime(1, first=1.5), backward=WorkTime(2, first=2.25))
    graph = graph_of("gpipe", 2, 3)

    assert seconds_of(graph, costs, Kind.FORWARD) == [1.5, 1, 1]
    assert seconds_of(graph, costs, Kind.BACKWARD) == [2.25, 2, 2]  # in GPipe micro-batch 2 goes back first


def test_firsts_begin_anew_with_every_mini_batch() -> None:
    costs = every_stage(forward=WorkTime(1, first=1.5))

    assert seconds_of(continuous_graph("pipedream", 2, 2, mini_batches=3), costs, Kind.FORWARD, stage=1) == [1.5, 1] * 3


def test_sizes_scale_what_grows_with_samples_and_nothing_else() -> None:
    costs = TableCosts(
        default=PieceCosts(forward=2, backward=4, update=0.5, predict=0.25, bytes=PieceBytes(weights=100, activations=10)),
        micro_batch_size=2,
    )
    graph = continuous_graph("xpipe", 2, 1, mini_batches=3)
    larger = costs.resized(3)

    assert set(seconds_of(graph, larger, Kind.FORWARD)) == {3.0}
    assert set(seconds_of(graph, larger, Kind.BACKWARD)) == {6.0}
    assert set(seconds_of(graph, larger, Kind.UPDATE)) == {0.5}
    assert set(seconds_of(graph, larger, Kind.PREDICT)) == {0.25}
    found = larger.unit_bytes(graph)
    assert found is not None
    assert found.weights.tolist() == [100, 100]
    assert found.activations.tolist() == [15, 15]
    assert larger.micro_batch_samples(graph) == (3,)


@pytest.mark.parametrize(("name", "expected"), [("gpipe", 42), ("1f1b", 40)])
def test_uneven_micro_batches_take_time_by_their_samples(name: str, expected: float) -> None:
    costs = TableCosts(default=PieceCosts(forward=1, backward=2), micro_batch_sizes=(3, 3, 2))  # D2

    assert makespan(graph_of(name, 3, 3), costs) == expected


def test_fixed_costs_do_not_change_with_the_size() -> None:
    costs = TableCosts(default=PieceCosts(forward=1, backward=2), scaling=Scaling.FIXED)

    assert makespan(graph_of("1f1b", 4, 8), costs.resized(7)) == 33


def test_costs_by_size_are_linear_between_two_sizes_and_refused_outside() -> None:
    forward = BySize((1, 4), (WorkTime(1.0), WorkTime(2.5)))
    costs = TableCosts(default=PieceCosts(forward=forward, backward=2), scaling=Scaling.TABLE)
    graph = graph_of("gpipe", 1, 1)

    assert [seconds_of(graph, costs.resized(size), Kind.FORWARD) for size in (1, 3, 4)] == [[1.0], [2.0], [2.5]]
    assert seconds_of(graph, costs.resized(3), Kind.BACKWARD) == [2]
    with pytest.raises(ArgumentError, match=r"micro_batch_size 5 lies outside the costs' table \(1\.\.4\)"):
        costs.resized(5).times(graph)


def test_tables_by_size_go_with_scaling_table_only() -> None:
    forward = BySize((1, 4), (WorkTime(1.0), WorkTime(2.5)))

    with pytest.raises(ArgumentError, match="scaling linear goes with plain values"):
        TableCosts(default=PieceCosts(forward=forward, backward=2))


def test_latency_and_dispatch_gap_are_told_apart_from_durations() -> None:
    costs = TableCosts(default=PieceCosts(forward=1, backward=2), transfer=0.5, dispatch_gap_s=0.1)
    graph = graph_of("gpipe", 2, 3)
    times = costs.times(graph)

    assert times.gap == 0.1
    assert times.latency is not None
    assert set(times.latency[transfers(graph)]) == {0.5}
    assert set(times.duration[transfers(graph)]) == {0.0}


def test_a_constant_gap_before_every_task_adds_up_along_the_longest_path() -> None:
    costs = TableCosts(default=PieceCosts(forward=1, backward=2), dispatch_gap_s=0.1)

    # D25: 33 + 22 x 0.1; updates take no time here, so no gap stands before them.
    assert makespan(graph_of("1f1b", 4, 8), costs) == pytest.approx(35.2)


@pytest.mark.parametrize("num_rows", [2, 5])
def test_another_number_of_rows_than_stages_is_refused(num_rows: int) -> None:
    costs = TableCosts(rows=(PieceCosts(forward=1, backward=2),) * num_rows)

    with pytest.raises(
        ArgumentError, match=f"the costs table has {num_rows} stages, but the schedule has 4: give one row per stage"
    ):
        costs.times(graph_of("1f1b", 4, 8))


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"forward": math.nan}, "forward nan is not finite"),
        ({"forward": -1}, "forward -1 is negative"),
        ({"backward": None}, "no backward is stated: give backward, or input_grad and weight_grad"),
        ({"update": "3"}, "update '3' is not a number"),
        ({"predict": True}, "predict True is not a number"),
    ],
)
def test_what_is_no_time_is_refused(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ArgumentError, match=line):
        every_stage(**values)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"micro_batch_size": 0}, "micro_batch_size 0 must be an integer of at least 1"),
        ({"micro_batch_sizes": (1, 0)}, "micro_batch_sizes 0 is no size"),
        ({"dispatch_gap_s": -1}, "dispatch_gap_s -1 is negative"),
        ({"transfer": math.inf}, "transfer inf is not finite"),
        ({"layers_per_stage": (1,)}, "layers_per_stage cuts costs per layer, but these are per stage"),
        ({"granularity": Granularity.LAYER}, "costs per layer take no default"),
        ({"default": None}, "no costs: give rows, or a default"),
    ],
)
def test_what_breaks_a_rule_is_refused(values: dict[str, Any], line: str) -> None:
    with pytest.raises(ArgumentError, match=line):
        TableCosts(**{"default": PieceCosts(forward=1, backward=2), **values})


def test_negative_bytes_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"bytes\.weights -1 is negative: give bytes, finite and at least 0"):
        PieceBytes(weights=-1)


def test_the_description_names_medians_by_kind_and_stage() -> None:
    costs = TableCosts(
        rows=(PieceCosts(forward=WorkTime(1, first=3), backward=2, update=0.5), PieceCosts(forward=4, backward=5)),
        transfer=0.5,
        basis=Basis.MEASURED,
        file="two.costs.json",
    )
    described = costs.describe(graph_of("1f1b", 2, 2))

    assert described == {
        "kind": "table",
        "basis": "measured",
        "file": "two.costs.json",
        "granularity": "stage",
        "micro_batch_size": 1,
        "scaling": "linear",
        "forward_s": [1.0, 4.0],
        "backward_s": [2.0, 5.0],
        "input_grad_s": None,
        "weight_grad_s": None,
        "overlapped_s": None,
        "recompute_s": None,
        "update_s": [0.5, 0.0],
        "predict_s": None,
        "transfer_s": 0.5,
        "dispatch_gap_s": 0.0,
    }
    assert json.loads(json.dumps(described)) == described


def test_every_replica_has_firsts_of_its_own() -> None:
    costs = every_stage(forward=WorkTime(1, first=1.5))

    assert seconds_of(halved_graph(), costs, Kind.FORWARD) == [1.5, 1.5]  # both of mini-batch 0, on two devices
    assert seconds_of(graph_of("gpipe", 1, 2), costs, Kind.FORWARD) == [1.5, 1]
