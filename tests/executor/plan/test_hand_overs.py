"""Which values go from task to task, and by which transfer."""

from executor.plan.hand_overs import HandOver
from executor.plan.local import LOCAL
from executor.plan.plan import make_plan
from schedir.compiler import compile_program
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from tests.executor.small.models import compiled


def shown(graph: TaskGraph, hand_over: HandOver) -> str:
    """`0F0 -> 1F0`, with part and (local) where there are any."""
    part = "" if hand_over.part is None else f" part {hand_over.part}"
    local = " (local)" if hand_over.transfer == LOCAL else ""
    return f"{graph.label(hand_over.producer[0])} -> {graph.label(hand_over.consumer[0])}{part}{local}"


def test_a_skip_connection_is_a_second_part_of_what_its_first_stage_sends() -> None:
    # the drawing of executor.plan.hand_overs
    graph = compile_program(build_program("gpipe", num_devices=3, num_micro_batches=1), skips=[(0, 2)])
    assert sorted(shown(graph, each) for each in make_plan(graph).hand_overs) == [
        "0F0 -> 1F0 part 0",
        "0F0 -> 2F0 part 1",
        "1B0 -> 0B0",
        "1F0 -> 2F0",
        "2B0 -> 0B0 part 1",
        "2B0 -> 1B0 part 0",
    ]


def test_a_stage_takes_its_neighbours_value_before_those_over_skip_connections() -> None:
    graph = compile_program(build_program("gpipe", num_devices=3, num_micro_batches=1), skips=[(0, 2)])
    taken = [shown(graph, each) for each in make_plan(graph).hand_overs if graph.label(each.consumer[0]) == "2F0"]
    assert taken == ["1F0 -> 2F0", "0F0 -> 2F0 part 1"]


def test_between_stages_of_one_device_no_transfer_carries_a_value() -> None:
    graph = compiled("interleaved-1f1b", 1, 1, stages_per_device=2)
    assert sorted(shown(graph, each) for each in make_plan(graph).hand_overs) == ["0F0 -> 1F0 (local)", "1B0 -> 0B0 (local)"]


def test_every_transfer_belongs_to_the_tasks_at_its_ends() -> None:
    graph = compiled("1f1b", 3, 2)
    for each in make_plan(graph).hand_overs:
        assert graph.sources(each.transfer).tolist() == [each.producer[0]]
        assert each.transfer in graph.sources(each.consumer[0])


def test_a_recomputation_awaits_the_gradient_that_its_backward_takes() -> None:
    graph = compile_program(
        build_program("1f1b", num_devices=2, num_micro_batches=1), recompute="always", recompute_start="on-gradient"
    )
    plan = make_plan(graph)
    taken = {each.transfer: graph.label(each.consumer[0]) for each in plan.hand_overs}
    # stage 1 is the last: its gradient begins on its own device
    assert [(graph.label(task), taken[transfer]) for task, transfer in plan.awaited] == [("0R0", "0B0")]
