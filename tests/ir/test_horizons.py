"""Horizon policies, against the stored table and counted on the graph."""

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
