"""The bound: never above what an order reaches, and as high as is known for the papers' shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.search.found import AS_GOOD
from schedir.search.problem.problem import Objective, Problem, StagePlacement
from schedir.search.problem.room import room_of
from schedir.search.problem.tables import tables_of
from schedir.search.proofs.bound import first_starts, jackson, lower_bound
from schedir.search.search import search_order
from tests.near import near
from tests.search.problems import problem_of, problems


def bounds_of(problem: Problem) -> tuple[float, float]:
    """Return the bounds on makespan and device span."""
    tables = tables_of(problem, problem.placements()[0])
    room = room_of(problem, tables, None)
    spans = [-start for start in first_starts(tables)]
    return lower_bound(tables, room, [0.0] * tables.num_devices), lower_bound(tables, room, spans)


@pytest.mark.parametrize(("live", "makespan", "span"), [(None, 27, 24), (8, 27, 24), (4, 27, 27)])
def test_four_devices_and_eight_micro_batches_of_one_slot_each(live: int | None, makespan: float, span: float) -> None:
    assert bounds_of(problem_of(4, 8, live=live)) == (makespan, span)


def test_one_activation_leaves_one_micro_batch_at_a_time() -> None:
    """Device 0: F, six slots until I comes back, I, W; then the next forward."""
    assert bounds_of(problem_of(4, 3, live=1))[0] == 3 * 9


def test_whole_backwards_are_bounded_by_1f1b() -> None:
    """(m + p - 1)(F + B), which 1F1B reaches."""
    assert bounds_of(problem_of(4, 8, times={"forward": 1, "backward": 2}))[0] == 33


def test_a_machine_that_may_interrupt_takes_the_longest_tail_first() -> None:
    """Head 0, time 4, tail 0; at 1 comes time 2 with tail 5: done at 3 + 5 = 8, the first at 6."""
    assert jackson([(0.0, 4.0, 0.0), (1.0, 2.0, 5.0)]) == 8.0
    assert jackson([(0.0, 4.0, 3.0), (5.0, 1.0, 0.0)]) == 7.0


def test_nothing_starts_before_the_first_micro_batch_has_come_through() -> None:
    tables = tables_of(problem_of(3, 2, times={"forward": (1, 2, 3), "transfer": 0.5}), StagePlacement.LOOP)

    assert first_starts(tables) == [0.0, 1.5, 4.0]


def test_spans_that_begin_with_work_of_no_time_are_bounded_by_what_is_busy() -> None:
    """Device 0's forward takes nothing, so its span is that of I alone."""
    times = {"forward": 0, "input_grad": 0.1, "weight_grad": 0}
    found = search_order(problem_of(2, 1, times=times, objective=Objective.DEVICE_SPAN), iterations=10)

    assert (found.best.value, found.bound, found.optimal) == (near(0.1), 0.1, True)


@st.composite
def measured(draw: DrawFn) -> Problem:
    """Draw costs as a profile states them: a gap before every task, other times for the first of a kind in a mini-batch."""
    times = st.floats(0.5, 6)

    def work() -> WorkTime:
        return WorkTime(draw(times), draw(st.none() | times))

    def row() -> PieceCosts:
        whole = work() if draw(st.booleans()) else None
        return PieceCosts(forward=work(), backward=whole, input_grad=work(), weight_grad=work(), update=work())

    costs = TableCosts(rows=(row(), row()), transfer=draw(st.sampled_from([0.0, 0.5])), dispatch_gap_s=draw(times))
    return Problem(
        num_devices=2, num_micro_batches=draw(st.integers(1, 4)), costs=costs, objective=draw(st.sampled_from(Objective))
    )


@pytest.mark.law
@given(problem=measured())
def test_no_order_is_below_the_bound_of_measured_costs(problem: Problem) -> None:
    """A run starts behind the gap of its first task; which backward is the first of its kind is up to an order that splits some."""
    found = search_order(problem, iterations=300)

    assert found.bound <= found.best.value * AS_GOOD


def test_a_bound_leaves_out_the_gap_before_the_first_task() -> None:
    """One device, F = B = 1 s, a gap of 2 s before each, m = 2: 4 works and the 3 gaps between them."""
    costs = TableCosts(rows=(PieceCosts(forward=WorkTime(1.0), backward=WorkTime(1.0)),), transfer=0.0, dispatch_gap_s=2.0)
    for objective in Objective:
        found = search_order(Problem(num_devices=1, num_micro_batches=2, costs=costs, objective=objective), iterations=10)
        assert (found.best.value, found.bound, found.optimal) == (10.0, 10.0, True)


@pytest.mark.law
@given(problem=problems())
def test_no_order_is_below_the_bound(problem: Problem) -> None:
    found = search_order(problem, iterations=100)

    assert found.notes or found.bound <= found.best.value * AS_GOOD
