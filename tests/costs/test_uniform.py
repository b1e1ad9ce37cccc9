"""Uniform costs: defaults, halves, sizes, refusals. D… are the known problems; GPipe's and 1F1B's spans are the papers'."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from schedir.compiler import compile_program
from schedir.costs.transfers import transfers
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program
from tests.costs.graphs import continuous_graph, graph_of, makespan, overlapped_graph, replicated_graph, seconds_of, split_graph


def test_nothing_given_is_forward_one_and_backward_two() -> None:
    graph = graph_of("1f1b", 4, 8)

    assert set(seconds_of(graph, UniformCosts(), Kind.FORWARD)) == {1.0}
    assert set(seconds_of(graph, UniformCosts(), Kind.BACKWARD)) == {2.0}
    assert set(seconds_of(graph, UniformCosts(), Kind.UPDATE)) == {0.0}
    assert makespan(graph, UniformCosts()) == 33  # (m + p - 1)(F + B)


def test_nothing_given_is_two_halves_of_one() -> None:
    assert seconds_of(split_graph(), UniformCosts(), Kind.INPUT_GRAD) == [1, 1]
    assert seconds_of(split_graph(), UniformCosts(), Kind.WEIGHT_GRAD) == [1, 1]


def test_a_full_backward_is_the_sum_of_given_halves() -> None:
    costs = UniformCosts(input_grad=1.5, weight_grad=0.25)

    assert set(seconds_of(graph_of("gpipe", 2, 2), costs, Kind.BACKWARD)) == {1.75}


def test_a_split_backward_needs_halves() -> None:
    line = "zb-h1 splits backward: give --input-grad and --weight-grad instead of --backward 2$"

    with pytest.raises(ArgumentError, match=line):  # formats/README, first errors
        UniformCosts(backward=2).times(split_graph())


def test_one_half_alone_is_refused() -> None:
    with pytest.raises(ArgumentError, match="input_grad is given without weight_grad: give both halves"):
        UniformCosts(input_grad=1)


def test_recomputation_takes_as_long_as_the_forward_unless_given() -> None:
    graph = graph_of("gpipe", 2, 2, recompute="always")

    assert seconds_of(graph, UniformCosts(forward=3), Kind.RECOMPUTE) == [3, 3]
    assert seconds_of(graph, UniformCosts(forward=3, recompute=2), Kind.RECOMPUTE) == [2, 2]


@pytest.mark.parametrize(
    ("recompute", "start", "expected"),
    [
        ("never", "early", 21),
        ("except-last", "early", 24),
        ("always", "early", 25),
        ("except-last", "on-gradient", 27),
        ("always", "on-gradient", 28),
    ],
)
def test_gpipe_with_recomputation_takes_as_long_as_d20_says(recompute: str, start: str, expected: float) -> None:
    graph = graph_of("gpipe", 4, 4, recompute=recompute, recompute_start=start)

    assert makespan(graph, UniformCosts()) == expected


def test_selective_recomputation_is_refused_with_the_reason() -> None:
    graph = graph_of("gpipe", 2, 2, recompute="selective")

    with pytest.raises(RefusedError, match=r"selective makes only part of a forward again.*use recompute always"):
        UniformCosts().times(graph)


def test_values_per_stage_apply_to_their_stage() -> None:
    costs = UniformCosts(forward=[1, 2, 3], backward=(4, 5, 6))
    graph = graph_of("gpipe", 3, 1)

    assert [seconds_of(graph, costs, Kind.FORWARD, stage=stage) for stage in range(3)] == [[1], [2], [3]]
    assert [seconds_of(graph, costs, Kind.BACKWARD, stage=stage) for stage in range(3)] == [[4], [5], [6]]


@pytest.mark.parametrize(("name", "expected"), [("1f1b", 55), ("gpipe", 57)])
def test_one_slow_stage_parts_gpipe_from_1f1b(name: str, expected: float) -> None:
    costs = UniformCosts(forward=[1, 1, 2, 1], backward=[2, 2, 4, 2])  # D30

    assert makespan(graph_of(name, 4, 8), costs) == expected


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_a_stage_may_cost_nothing(name: str) -> None:
    costs = UniformCosts(forward=[1, 0, 1], backward=[2, 0, 2])  # D30: p=3, m=4

    assert makespan(graph_of(name, 3, 4), costs) == 15


@pytest.mark.parametrize(("name", "expected"), [("gpipe", 42), ("1f1b", 40)])
def test_uneven_micro_batches_take_time_by_their_samples(name: str, expected: float) -> None:
    costs = UniformCosts(micro_batch_sizes=[3, 3, 2])  # D2: F=1, B=2 per sample

    assert makespan(graph_of(name, 3, 3), costs) == expected


def test_sizes_do_not_change_updates_and_predictions() -> None:
    costs = UniformCosts(update=0.5, predict=0.25, micro_batch_sizes=[4])
    graph = continuous_graph("xpipe", 2, 1, mini_batches=3)

    assert set(seconds_of(graph, costs, Kind.UPDATE)) == {0.5}
    assert set(seconds_of(graph, costs, Kind.PREDICT)) == {0.25}
    assert set(seconds_of(graph, costs, Kind.FORWARD)) == {4.0}


def test_a_pair_takes_as_long_as_its_two_actions_unless_given() -> None:
    graph = overlapped_graph()

    assert seconds_of(graph, UniformCosts(forward=[1, 5], backward=[2, 7]), Kind.OVERLAPPED) == [3]
    assert seconds_of(graph, UniformCosts(overlapped=2.5), Kind.OVERLAPPED) == [2.5]


def test_a_pair_of_uneven_micro_batches_counts_each_action_by_its_own() -> None:
    graph = overlapped_graph()  # F of micro-batch 1 (2 samples), B of micro-batch 0 (4 samples)

    assert seconds_of(graph, UniformCosts(micro_batch_sizes=[4, 2]), Kind.OVERLAPPED) == [1 * 2 + 2 * 4]
    assert seconds_of(graph, UniformCosts(overlapped=2.5, micro_batch_sizes=[4, 2]), Kind.OVERLAPPED) == [2.5 * 3]


@pytest.mark.parametrize(("given", "expected"), [(None, None), (2.5, [2.5, 2.5]), ([2.5, 4.0], [2.5, 4.0])])
def test_the_time_of_a_pair_is_described_only_where_it_was_given(
    given: float | list[float] | None, expected: list[float] | None
) -> None:
    """By stage of the pair's forward; not given, a pair's time is that of its two actions, which are described."""
    graph = overlapped_graph()

    assert UniformCosts(overlapped=given).describe(graph)["overlapped_s"] == expected


def test_a_transfer_is_latency_only() -> None:
    graph = graph_of("gpipe", 2, 3)
    times = UniformCosts(transfer=0.5).times(graph)

    assert times.latency is not None
    assert set(times.duration[transfers(graph)]) == {0.0}
    assert set(times.latency[transfers(graph)]) == {0.5}
    assert set(times.latency[: graph.num_compute_tasks]) == {0.0}
    assert makespan(graph, UniformCosts(transfer=0.5)) == 13  # 4 (F + B) + one transfer each way


def test_bytes_of_a_transfer_are_per_sample_where_sizes_are_given() -> None:
    graph = graph_of("gpipe", 2, 2)
    bare, sized = UniformCosts(transfer_bytes=10), UniformCosts(transfer_bytes=10, micro_batch_sizes=[3, 2])

    for costs, expected in ((bare, [10, 10, 10, 10]), (sized, [20, 20, 30, 30])):
        found = costs.bytes_of_transfers(graph)
        assert found is not None
        assert sorted(found.tolist()) == expected
    assert UniformCosts().bytes_of_transfers(graph) is None


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (math.nan, r"forward nan is not finite: give seconds, finite and at least 0"),
        (math.inf, r"forward inf is not finite"),
        (-1, r"forward -1 is negative: give seconds, finite and at least 0"),
        (True, r"forward True is not a number"),
        ("1", r"forward '1' is not a number"),
        ([1, -2], r"forward\[1\] -2 is negative"),
        ([], r"forward is empty: give one value, or one per stage"),
    ],
)
def test_what_is_no_time_is_refused(value: Any, line: str) -> None:  # D32
    with pytest.raises(ArgumentError, match=line):
        UniformCosts(forward=value)


@pytest.mark.parametrize("value", [np.float64(1.5), np.float32(1.5), np.array(1.5), torch.tensor(1.5)], ids=type)
def test_numbers_of_numpy_and_torch_are_numbers(value: Any) -> None:
    costs = UniformCosts(forward=value, backward=[value, value], micro_batch_sizes=[np.int64(2), torch.tensor(1)])  # type: ignore[list-item]  # sizes are ints to a user

    described = costs.describe(graph_of("gpipe", 2, 2))
    assert (described["forward_s"], described["backward_s"]) == ([1.5, 1.5], [1.5, 1.5])
    assert json.loads(json.dumps(described)) == described  # nothing of NumPy's or torch's is left
    assert costs == UniformCosts(forward=1.5, backward=[1.5, 1.5], micro_batch_sizes=[2, 1])


@pytest.mark.parametrize("value", [np.array(True), np.array("1"), np.ones((2, 30)), torch.ones(2, 30), torch.tensor(1j)], ids=type)
def test_other_arrays_are_refused_in_one_line(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"^forward.* is not a number: give seconds, finite and at least 0$"):
        UniformCosts(forward=value)


def test_a_sequence_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ArgumentError, match="forward has 3 values, but 1f1b has 4 stages: give one value, or one per stage"):
        UniformCosts(forward=[1, 1, 1]).times(graph_of("1f1b", 4, 8))  # D32


def test_sizes_of_the_wrong_number_or_kind_are_refused() -> None:
    with pytest.raises(ArgumentError, match="micro_batch_sizes has 3 values, but gpipe has 2 micro-batches per mini-batch"):
        UniformCosts(micro_batch_sizes=[3, 3, 2]).times(graph_of("gpipe", 2, 2))
    for size in (0, 2.5, True):
        with pytest.raises(ArgumentError, match=f"micro_batch_sizes {size!r} is no size: give integers of at least 1"):
            UniformCosts(micro_batch_sizes=[size])  # type: ignore[list-item]  # what a user may pass by mistake


def test_the_description_is_what_simulate_prints() -> None:
    expected = {  # formats/1f1b-4-8.simulate.json
        "kind": "uniform",
        "basis": "assumed",
        "file": None,
        "forward_s": [1.0, 1.0, 1.0, 1.0],
        "backward_s": [2.0, 2.0, 2.0, 2.0],
        "input_grad_s": None,
        "weight_grad_s": None,
        "overlapped_s": None,
        "recompute_s": None,
        "update_s": 0.0,
        "predict_s": None,
        "transfer_s": 0.0,
    }

    described = UniformCosts().describe(graph_of("1f1b", 4, 8))

    assert described == expected
    assert json.loads(json.dumps(described)) == expected


def test_the_notes_say_what_is_free() -> None:
    graph = graph_of("1f1b", 4, 8)
    memory = "memory is not computed: uniform costs carry no bytes"

    assert UniformCosts().notes(graph) == ("transfers are free: neither --transfer nor --cluster was given", memory)
    assert UniformCosts(transfer=0).notes(graph) == (memory,)
    assert UniformCosts().notes(graph, has_cluster=True) == (memory,)
    assert UniformCosts().notes(graph_of("1f1b", 1, 8)) == (memory,)
    reductions = "gradient reductions over replicas are free: no --cluster was given"
    assert UniformCosts(transfer=0).notes(replicated_graph()) == (reductions, memory)
    assert UniformCosts(transfer=0).notes(replicated_graph(), has_cluster=True) == (memory,)
    tied = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=2), ties=[(0, 2)])
    exchange = "exchanges of tied weights' gradients are free: the costs do not say how many bytes they have"
    assert UniformCosts(transfer=0).notes(tied, has_cluster=True) == (exchange, memory)


def test_numbers_of_numpy_are_taken() -> None:
    forward: Any = np.array([1.0, 2.0])
    backward: Any = np.float32(0.5)
    costs = UniformCosts(forward=forward, backward=backward)

    assert costs == UniformCosts(forward=(1.0, 2.0), backward=0.5)
