"""Horizon policies, against the stored table and counted on the graph."""

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.ir.action import Direction, Kind
from schedir.ir.facts import facts
from schedir.ir.horizons import POLICIES, check_policy, constant_horizons
from schedir.schedules.registry import build_program
from tests import async_cases
from tests.programs import spans

SHAPES = [(p, t) for p in (1, 2, 3, 4) for t in (1, 2, 4)]


def stored(p: int, t: int, *names: str) -> list[list[int]]:
    return [async_cases.stored()["horizons"][f"p{p}_T{t}"][name] for name in names]


@pytest.mark.parametrize(("p", "t"), SHAPES)
@pytest.mark.parametrize(
    ("policy", "forward", "backward"),
    [
        ("xpipe-paper", "paper_F_half_up", "paper_B_floor"),
        ("xpipe-paper-half-up", "paper_F_half_up", "paper_B_half_up"),
        ("xpipe-paper-half-even", "paper_F_half_even", "paper_B_floor"),
        ("spectrain-paper", "spectrain_F", "spectrain_B"),
        ("round-trip", "round_trip_F", "round_trip_B"),
    ],
)
def test_formulas_give_the_stored_table(*, p: int, t: int, policy: str, forward: str, backward: str) -> None:
    assert list(constant_horizons(policy, p, t)) == stored(p, t, forward, backward)


@pytest.mark.parametrize(("p", "t"), SHAPES)
def test_exact_horizons_are_counted_on_the_graph(p: int, t: int) -> None:
    found = facts(compile_program(build_program("xpipe", num_devices=p, num_micro_batches=t, horizon="exact")))

    assert [list(found.horizon_forward or ()), list(found.horizon_backward or ())] == stored(p, t, "exact_F", "exact_B")


@pytest.mark.parametrize(("p", "t"), SHAPES)
def test_the_round_trip_is_counted_on_the_graphs_unit_slots(p: int, t: int) -> None:
    """Updates that end after the bellwether starts and strictly before the mini-batch ends its round trip on stage 0."""
    graph = compile_program(build_program("xpipe", num_devices=p, num_micro_batches=t, num_mini_batches=4 * p + 8, horizon=0))
    times = spans(graph, backward=1.0)
    mini_batch = 2 * p + 4  # in the middle: steady state
    start, end = {}, {}
    for task in graph.tasks():
        start[task.kind, task.stage, task.micro_batch] = times.start[task.index]
        end[task.kind, task.stage, task.micro_batch] = times.end[task.index]
    back = end[Kind.BACKWARD, 0, mini_batch * t + t - 1]

    def counted(direction: Direction, stage: int) -> int:
        kind = Kind.FORWARD if direction is Direction.FORWARD else Kind.BACKWARD
        begins = start[kind, stage, mini_batch * t]
        return sum(begins < ends < back for (kind, k, _), ends in end.items() if kind is Kind.UPDATE and k == stage)

    assert [[counted(direction, stage) for stage in range(p)] for direction in Direction] == stored(
        p, t, "round_trip_F", "round_trip_B"
    )


@pytest.mark.parametrize("horizon", [*POLICIES, 0, 1])
@pytest.mark.parametrize("name", ["xpipe", "spectrain", "pipeoptim"])
@pytest.mark.parametrize(("p", "t"), SHAPES)
def test_where_the_horizon_is_zero_true_weights_are_read_and_nothing_is_predicted(
    *, p: int, t: int, name: str, horizon: str | int
) -> None:
    """A task reads a prediction where its horizon is above 0, and only there; every prediction is read by some task."""
    graph = compile_program(build_program(name, num_devices=p, num_micro_batches=t, horizon=horizon))
    predictions = {task.index for task in graph.tasks() if task.kind is Kind.PREDICT}
    reads = np.isin(graph.kind, [Kind.FORWARD, Kind.BACKWARD])
    ahead = reads & (graph.horizon > 0)

    assert set(graph.predicted_by[ahead].tolist()) == predictions
    assert set(graph.predicted_by[reads & ~ahead].tolist()) <= {-1}
    assert all(graph.horizon[task] > 0 for task in predictions)


# Stages with a horizon above 0 for p = 4, T = 1: PipeOptim p - k - 1; XPipe floor(p - k/2 - 1/2), floor(k/2); SpecTrain floor(k/2)
# + p - k - 1, floor(k/2).
@pytest.mark.parametrize(
    ("horizon", "forward", "backward"),
    [
        ("exact", {0, 1, 2}, set()),
        ("pipeoptim", {0, 1, 2}, set()),
        ("xpipe-paper", {0, 1, 2, 3}, {2, 3}),
        ("spectrain-paper", {0, 1, 2, 3}, {2, 3}),
        (0, set(), set()),
        (1, {0, 1, 2, 3}, set()),
    ],
)
@pytest.mark.parametrize("name", ["xpipe", "spectrain", "pipeoptim"])
def test_predictions_stand_on_the_stages_whose_horizon_is_above_zero(
    *, name: str, horizon: str | int, forward: set[int], backward: set[int]
) -> None:
    graph = compile_program(build_program(name, num_devices=4, num_micro_batches=1, horizon=horizon))
    predicted = graph.kind == Kind.PREDICT
    found = [set(graph.stage[predicted & (graph.direction == direction)].tolist()) for direction in Direction]

    assert found == [forward, backward]


def test_an_integer_is_a_forward_horizon() -> None:
    assert constant_horizons(2, 3, 1) == ([2, 2, 2], [0, 0, 0])


@pytest.mark.parametrize("horizon", [*POLICIES, 0, 3])
def test_known_horizons_are_taken(horizon: str | int) -> None:
    assert check_policy(horizon) == horizon


def test_an_integer_may_be_written_as_text() -> None:
    assert check_policy("3") == 3


@pytest.mark.parametrize("horizon", ["far", "", -1, 10000, True, None, 1.5, "1.5"])
def test_other_horizons_are_refused_with_the_known_ones(horizon: object) -> None:
    with pytest.raises(ArgumentError, match=r"^horizon .* is unknown: use exact, .*round-trip.* or an integer from 0 to 9999$"):
        check_policy(horizon)  # type: ignore[arg-type] # what a user may pass
