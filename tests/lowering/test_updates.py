"""Where updates stand, and what a program that places its own has to prove."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import ProgramError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind
from schedir.ir.program import Program
from schedir.ir.weights import Rule
from schedir.schedules.registry import build_program
from tests.programs import lane_of, written


def updates(graph: TaskGraph, stage: int, device: int) -> list[tuple[int, list[int]]]:
    """Return (version made, members) of a stage's updates on a device."""
    found = [graph.task(index) for index in graph.lane_range(device)]
    return [(task.version, list(graph.members(task.index))) for task in found if task.kind is Kind.UPDATE and task.stage == stage]


def test_an_update_stands_behind_the_last_gradient_of_its_mini_batch() -> None:
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=2, num_mini_batches=2))

    assert lane_of(graph, 0) == "0F0 0F1 0B1 0B0 0U1 0F2 0F3 0B3 0B2 0U3"
    assert updates(graph, 1, 1) == [(1, [0, 1]), (2, [2, 3])]


def test_of_a_split_backward_the_weight_gradients_decide() -> None:
    graph = compile_program(written("0F0 0I0 0F1 0I1 0W1 0W0", m=2))

    assert lane_of(graph, 0) == "0F0 0I0 0F1 0I1 0W1 0W0 0U1"


def test_two_stages_of_one_device_update_each_behind_its_own_last_gradient() -> None:
    graph = compile_program(written("0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1", m=1, n=2, stages=2))

    assert lane_of(graph, 0) == "0F0 1F0 1B0 1U0 0B0 0U0 0F1 1F1 1B1 1U1 0B1 0U1"


def test_replicas_of_pipedream_update_together_once_a_round() -> None:
    graph = compile_program(build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=4, replicas=(2, 1)))

    assert lane_of(graph, 0) == "0F0 0F2 0B0 0U1 0B2 0U3"
    assert lane_of(graph, 1) == "0F1 0F3 0B1 0U1 0B3 0U3"
    assert updates(graph, 0, 0) == updates(graph, 0, 1) == [(1, [0, 1]), (2, [2, 3])]
    assert updates(graph, 1, 2) == [(1, [0]), (2, [1]), (3, [2]), (4, [3])]


def test_an_incomplete_last_round_is_updated_on_all_replicas() -> None:
    graph = compile_program(build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=3, replicas=(2, 1)))

    assert lane_of(graph, 0) == "0F0 0F2 0B0 0U1 0B2 0U2"
    assert lane_of(graph, 1) == "0F1 0B1 0U1 0U2"
    assert updates(graph, 0, 1) == [(1, [0, 1]), (2, [2])]


def test_the_update_of_replicas_waits_for_the_gradients_of_all() -> None:
    graph = compile_program(build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=2, replicas=(2, 1)))
    [reduction] = [task for task in graph.tasks() if task.kind is Kind.REDUCE]
    makers = [graph.label(source) for source in graph.sources(reduction.index).tolist()]
    users = [task for task in graph.tasks() if reduction.index in graph.sources(task.index).tolist()]

    assert makers == ["0B0", "0B1"]
    assert [(str(task), task.device) for task in users] == [("0U1", 0), ("0U1", 1)]
    assert str(graph.lanes[reduction.lane]) == "reduce stage 0"
    assert set(graph.edge_kind[graph.edge_start[reduction.index] : graph.edge_start[reduction.index + 1]]) == {EdgeKind.REDUCE}


def two_directions() -> Program:
    """Two stages, each on both devices: micro-batch 0 runs down, micro-batch 1 up (Chimera with p = m = 2)."""
    return written("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1", m=2, stages=2)


def test_synchronous_replicas_share_every_mini_batch() -> None:
    graph = compile_program(two_directions())

    assert lane_of(graph, 0) == "0F0 1F1 1B1 0B0 0U1 1U1"
    assert graph.stage_devices() == ((0, 1), (0, 1))
    assert [updates(graph, stage, device) for stage in (0, 1) for device in (0, 1)] == [[(1, [0, 1])]] * 4
    assert graph.round_size.tolist() == [1, 1]
    assert sorted(str(lane) for lane in graph.lanes if "reduce" in str(lane)) == ["reduce stage 0", "reduce stage 1"]


def test_replicas_that_flush_update_when_their_device_has_nothing_left_to_do() -> None:
    """An update of stage 1 right behind 1B1 would wait for 1B0 of device 1, which waits for 0F0 of device 0."""
    graph = compile_program(written("1F1 1B1 0F0 0B0", "0F1 0B1 1F0 1B0", m=2, stages=2))

    assert lane_of(graph, 0) == "1F1 1B1 0F0 0B0 0U1 1U1"


def test_a_replica_without_any_share_of_its_first_update_is_refused() -> None:
    program = written("0F0 0B0", "0F1 0B1", m=1, n=2, stages=1)

    with pytest.raises(ProgramError, match="device 1 holds a replica of stage 0 but none of the micro-batches of its first update"):
        compile_program(program)


def test_a_replica_without_a_share_of_a_mini_batch_updates_behind_what_its_device_still_has_to_do_for_it() -> None:
    """Device 1 has none of stage 0 in the second of three mini-batches, but device 0 waits for its 1B2 and 1B3."""
    graph = compile_program(
        written(
            "0F0 0B0 0F2 0F3 0B2 0B3 0F4 0B4",
            "0F1 1F0 1B0 1F1 1B1 0B1 1F2 1B2 1F3 1B3 0F5 1F4 1B4 1F5 1B5 0B5",
            m=2,
            n=3,
            stages=2,
        )
    )

    assert lane_of(graph, 0) == "0F0 0B0 0U1 0F2 0F3 0B2 0B3 0U3 0F4 0B4 0U5"
    assert lane_of(graph, 1) == ("0F1 1F0 1B0 1F1 1B1 1U1 0B1 0U1 1F2 1B2 1F3 1B3 0U3 1U3 0F5 1F4 1B4 1F5 1B5 1U5 0B5 0U5")


def test_replicas_update_behind_the_last_of_their_gradients_whichever_micro_batch_it_is_of() -> None:
    program = written("0F0 0F1 0B1 0B0", "0F2 0F3 0B3 0B2", m=2, n=2, stages=1, weights=Rule.STASH)

    assert lane_of(compile_program(program), 0) == "0F0 0F1 0B1 0B0 0U3"


def test_a_replica_without_a_share_of_the_last_round_updates_at_its_end() -> None:
    """Right behind 0U1, 0U2 would wait for 0B2 of device 0, which waits for 1B2."""
    program = written("0F0 0F2 0B0 0B2", "0F1 1F0 1B0 1F1 1B1 0B1 1F2 1B2", m=1, n=3, stages=2, weights=Rule.STASH)

    assert lane_of(compile_program(program), 1) == "0F1 1F0 1B0 1U0 1F1 1B1 1U1 0B1 0U1 1F2 1B2 0U2 1U2"


def test_a_replica_without_a_share_of_a_round_in_between_updates_right_behind_its_update_before() -> None:
    """Rounds of two: device 1 has mini-batch 1 of the first, 3 of the second, nothing of the third, 7 of the fourth."""
    orders = ("0F0 0B0 0F2 0B2 0F4 0B4 0F5 0B5 0F6 0B6", "0F1 0B1 0F3 0B3 0F7 0B7")
    graph = compile_program(written(*orders, m=1, n=8, stages=1, weights=Rule.STASH))

    assert lane_of(graph, 1) == "0F1 0B1 0U1 0F3 0B3 0U3 0U5 0F7 0B7 0U7"


# ---------------------------------------------------------------- updates that the program places itself


def test_updates_of_the_program_stay_where_they_stand_and_none_is_added() -> None:
    graph = compile_program(written("0F0 0B0 0F1 0B1 0U0 0U1", m=1, n=2, weights=Rule.STASH))

    assert lane_of(graph, 0) == "0F0 0B0 0F1 0B1 0U0 0U1"
    assert graph.version[:6].tolist() == [0, 0, 0, 0, 1, 2]


def test_updates_of_replicas_may_be_placed_too() -> None:
    graph = compile_program(
        written("0F0 0B0 0U1", "0F1 0B1 0U1", "1F0 1B0 1U0 1F1 1B1 1U1", m=1, n=2, stages=2, weights=Rule.STASH)
    )

    assert updates(graph, 0, 0) == updates(graph, 0, 1) == [(1, [0, 1])]
    assert updates(graph, 1, 2) == [(1, [0]), (2, [1])]


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (("0F0 0F1 0B0 0U1 0B1",), r"device 0: 0U1 stands before 0B1, whose gradient it needs: move it behind"),
        (("0F0 0F1 0B0 0B1 0U0",), r"device 0: 0U0 does not end a mini-batch: an update is numbered by its last micro-batch"),
        (
            ("0F0 0F1 0B0 0B1 0U1", "1F0 1B0 1F1 1B1"),
            r"device 1 places the updates \[\] of stage 1, but 1 to 1 are needed, .*: place all updates of all stages, or none",
        ),
        (
            ("0F0 0F1 0B0 0B1 0U1", "1F0 1B0 1F1 1B1 1U1 0U1"),
            r"device 1: 0U1 stands on a device without stage 0: move it",
        ),
        (("0F0 0F1 0B0 0B1 0U1 0U1",), r"device 0 places the updates \[1, 1\] of stage 0, but 1 to 1 are needed"),
    ],
)
def test_a_misplaced_update_is_named(orders: tuple[str, ...], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        compile_program(written(*orders, m=2))


def test_updates_out_of_order_are_refused() -> None:
    with pytest.raises(ProgramError, match=r"device 0 places the updates \[2, 1\] of stage 0, but 1 to 2 are needed"):
        compile_program(written("0F0 0F1 0B0 0B1 0U1 0U0", m=1, n=2, weights=Rule.STASH))
