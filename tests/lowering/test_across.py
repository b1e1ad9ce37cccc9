"""Ties: which updates wait for whom, where they stand, and what is refused."""

import pytest

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, DeadlockError, ProgramError, RefusedError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind
from schedir.schedules.registry import SCHEDULES, build_program
from simulator import simulate
from tests.programs import lane_of, written


def sums(graph: TaskGraph) -> list[tuple[str, list[str], list[str]]]:
    """Return lane, sources and targets of every reduction."""
    found = []
    for task in (task for task in graph.tasks() if task.kind is Kind.REDUCE):
        users = [user for user in range(graph.num_compute_tasks) if task.index in graph.sources(user).tolist()]
        makers = graph.sources(task.index).tolist()
        found.append((str(graph.lanes[task.lane]), [graph.label(maker) for maker in makers], [graph.label(user) for user in users]))
    return found


def test_every_update_of_a_tie_waits_for_the_last_gradient_of_all_its_stages() -> None:
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=2, num_mini_batches=2), ties=[(0, 2)])
    reductions = [task.index for task in graph.tasks() if task.kind is Kind.REDUCE]

    assert sums(graph) == [
        ("reduce tied stages 0, 2", ["0B1", "2B1"], ["0U1", "2U1"]),
        ("reduce tied stages 0, 2", ["0B3", "2B3"], ["0U3", "2U3"]),
    ]
    assert set(graph.edge_kind[graph.edge_start[reductions[0]] :].tolist()) == {EdgeKind.REDUCE}


def test_on_one_device_updates_stand_behind_all_gradients_and_nothing_is_exchanged() -> None:
    """Stage 3 of the V would update behind its own last gradient."""
    program = written("0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0", m=1, stages=4)

    assert lane_of(compile_program(program), 0) == "0F0 3F0 3B0 3U0 0B0 0U0"
    tied = compile_program(program, ties=[(0, 3)])
    assert lane_of(tied, 0) == "0F0 3F0 3B0 0B0 0U0 3U0"
    assert sums(tied) == []


def test_a_device_does_not_wait_in_an_update_for_what_it_has_not_done_yet() -> None:
    """Interleaved: stage 3 would wait behind 3B0 for 0B0, which needs 1B0, which stands behind it."""
    program = written("0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0", m=1, stages=4)

    assert lane_of(compile_program(program, ties=[(0, 3)]), 1) == "1F0 3F0 3B0 1B0 1U0 3U0"


def test_ties_with_a_stage_in_common_are_one() -> None:
    program = build_program("gpipe", num_devices=5, num_micro_batches=1)

    assert compile_program(program, ties=[(4, 0), (1, 3), (2, 4)]).options.ties == ((0, 2, 4), (1, 3))


def test_replicas_are_summed_and_then_the_stages() -> None:
    """Chimera: both stages stand on both devices, so all four last gradients go into the tie, two into each stage's own sum."""
    graph = compile_program(build_program("chimera", num_devices=2, num_micro_batches=2), ties=[(0, 1)])

    assert [(lane, len(sources), len(users)) for lane, sources, users in sums(graph)] == [
        ("reduce stage 0", 2, 2),
        ("reduce stage 1", 2, 2),
        ("reduce tied stages 0, 1", 4, 4),
    ]


def test_updates_of_ones_own_behind_which_a_gradient_is_missing_are_refused() -> None:
    program = written("0F0 1F0 1B0 1U0 0B0 0U0", m=1, stages=2)

    with pytest.raises(ProgramError, match=r"1U0 stands before 0B0, whose gradient it needs: stages 0, 1 hold the same weights"):
        compile_program(program, ties=[(0, 1)])


def test_updates_of_ones_own_that_wait_for_each_other_are_a_deadlock() -> None:
    program = written("0F0 2F0 2B0 2U0 0B0 0U0", "1F0 3F0 3B0 3U0 1B0 1U0", m=1, stages=4)

    with pytest.raises(DeadlockError, match=r"3U0"):
        compile_program(program, ties=[(0, 3)])


@pytest.mark.parametrize("tie", [(0,), (0, 0), (0, 3), (-1, 2), (0, 1.0), (0, True), "01", 3])
def test_a_tie_that_is_no_two_stages_is_refused(tie: object) -> None:
    program = build_program("1f1b", num_devices=3, num_micro_batches=1)

    with pytest.raises(ArgumentError, match=r"^ties .* do not name stages of 0\.\.2: give two or more for each tie, each once$"):
        compile_program(program, ties=[tie])  # type: ignore[list-item]  # what users give


@pytest.mark.parametrize("name", [name for name, schedule in SCHEDULES.items() if schedule.continuous])
def test_without_a_flush_there_is_no_moment_for_it(name: str) -> None:
    program = build_program(name, num_devices=2, num_micro_batches=2)

    with pytest.raises(RefusedError, match=rf"^{program.name} updates every stage at a moment of its own, but stages 0 and 1 hold"):
        compile_program(program, ties=[(0, 1)])


def test_both_engines_wait_for_the_exchange() -> None:
    graph = compile_program(build_program("gpipe", num_devices=3, num_micro_batches=2), ties=[(0, 2)])
    timelines = [simulate(graph, UniformCosts(), engine=engine) for engine in ("in-order", "simpy")]
    updates = {graph.label(task): float(timelines[0].start[task]) for task in range(graph.num_compute_tasks)}

    assert (timelines[0].end == timelines[1].end).all()
    # the last stage ends its four tasks at 8, the middle one at 10, the first at 12, for whose gradient the last one waits
    assert (updates["2U1"], updates["1U1"], updates["0U1"]) == (12.0, 10.0, 12.0)
