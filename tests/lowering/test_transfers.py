"""Hand-overs between stages: over a link between devices, at no cost on one, over skips on a link of their own."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError, ProgramError
from schedir.ir.action import Direction, Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind
from schedir.schedules.registry import build_program
from tests.programs import makespan, written


def hand_overs(graph: TaskGraph) -> list[tuple[str, str, str]]:
    """Return (maker, lane, user) of every transfer."""
    found = []
    for task in graph.tasks():
        if task.kind is Kind.TRANSFER:
            [maker] = graph.sources(task.index).tolist()
            users = [user for user in range(graph.num_compute_tasks) if task.index in graph.sources(user).tolist()]
            found += [(graph.label(maker), str(graph.lanes[task.lane]), graph.label(user)) for user in users]
    return found


def test_activations_go_down_and_gradients_up() -> None:
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2))

    assert hand_overs(graph) == [
        ("0F0", "link 0->1", "1F0"),
        ("0F1", "link 0->1", "1F1"),
        ("1B0", "link 1->0", "0B0"),
        ("1B1", "link 1->0", "0B1"),
    ]


def test_a_transfer_names_its_sender_and_direction() -> None:
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=1))
    down, up = (task for task in graph.tasks() if task.kind is Kind.TRANSFER)

    assert (down.stage, down.micro_batch, down.device, down.direction) == (0, 0, 0, Direction.FORWARD)
    assert (up.stage, up.micro_batch, up.device, up.direction) == (1, 0, 1, Direction.BACKWARD)
    assert down.version == up.version == -1


def test_a_link_carries_what_its_sender_sends_in_the_senders_order() -> None:
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=3))

    assert [maker for maker, lane, _ in hand_overs(graph) if lane == "link 1->0"] == ["1B2", "1B1", "1B0"]


def test_stages_of_one_device_hand_over_without_a_transfer() -> None:
    graph = compile_program(written("0F0 1F0 1B0 0B0", "2F0 2B0", m=1, stages=3))

    assert hand_overs(graph) == [("1F0", "link 0->1", "2F0"), ("2B0", "link 1->0", "1B0")]
    assert makespan(graph, transfer=10) == 1 + 1 + 10 + 1 + 2 + 10 + 2 + 2


def test_only_the_input_gradient_of_a_split_backward_is_sent() -> None:
    graph = compile_program(written("0F0 0I0 0W0", "1F0 1I0 1W0", m=1))

    assert hand_overs(graph) == [("0F0", "link 0->1", "1F0"), ("1I0", "link 1->0", "0I0")]


def test_a_pair_sends_and_receives_for_both_of_its_halves() -> None:
    graph = compile_program(written("0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2", m=3))
    pair = "(0F2;0B0)OVERLAP_F_B"

    assert (pair, "link 0->1", "1F2") in hand_overs(graph)
    assert ("1B0", "link 1->0", pair) in hand_overs(graph)


def test_several_stages_on_a_device_use_a_link_both_ways() -> None:
    graph = compile_program(written("0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0", m=1, stages=4))

    assert hand_overs(graph) == [
        ("0F0", "link 0->1", "1F0"),
        ("2F0", "link 0->1", "3F0"),
        ("2B0", "link 0->1", "1B0"),
        ("1F0", "link 1->0", "2F0"),
        ("3B0", "link 1->0", "2B0"),
        ("1B0", "link 1->0", "0B0"),
    ]


def test_two_directions_use_both_links_for_activations() -> None:
    graph = compile_program(written("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1", m=2, stages=2))
    forwards = [(maker, lane) for maker, lane, user in hand_overs(graph) if "F" in user]

    assert forwards == [("0F0", "link 0->1"), ("0F1", "link 1->0")]


def test_recomputation_on_the_gradient_waits_for_it_too() -> None:
    graph = compile_program(
        build_program("1f1b", num_devices=2, num_micro_batches=1), recompute="always", recompute_start="on-gradient"
    )

    assert hand_overs(graph) == [("0F0", "link 0->1", "1F0"), ("1B0", "link 1->0", "0R0"), ("1B0", "link 1->0", "0B0")]


def test_a_skip_goes_over_a_link_of_its_own_and_its_gradient_comes_back() -> None:
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=1), skips=[(0, 2)])

    assert ("0F0", "link 0->2", "2F0") in hand_overs(graph)
    assert ("2B0", "link 2->0", "0B0") in hand_overs(graph)
    assert len(hand_overs(graph)) == 4 + 2


@pytest.mark.parametrize("skip", [(0, 1), (1, 0), (0, 3), (-1, 2)])
def test_a_skip_over_nothing_is_refused(skip: tuple[int, int]) -> None:
    with pytest.raises(ArgumentError, match=r"skips \(.*\) lead over no stage of 0\.\.2: give a target 2 or more"):
        compile_program(build_program("1f1b", num_devices=3, num_micro_batches=1), skips=[skip])


def test_edges_say_why_a_task_waits() -> None:
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=1))
    edges = zip(*(column.tolist() for column in graph.edges()), strict=True)
    found = {(graph.label(source), graph.label(target)): EdgeKind(kind) for source, target, kind in edges}

    assert found["0F0", "0T0"] is EdgeKind.DATA
    assert found["0F0", "0B0"] is EdgeKind.ORDER


def test_a_device_that_needs_its_own_later_result_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"^device 1: 1F1 waits for ever: it needs the result of 0F1, which stands behind it$"):
        compile_program(written("0F0 1F0 1B0 0B0", "1F1 0F1 1B1 0B1", m=2, stages=2))


def test_a_pair_cannot_feed_itself() -> None:
    with pytest.raises(ProgramError, match=r"device 0: \(1F0;0B0\)OVERLAP_F_B waits for ever: it needs the result of 1B0"):
        compile_program(written("0F0 (1F0;0B0)OVERLAP_F_B 1B0", m=1, stages=2))
