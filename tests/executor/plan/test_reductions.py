"""Which gradients are summed, by whom they are given, and who takes the sum."""

from executor.plan.local import LOCAL
from executor.plan.plan import make_plan
from executor.plan.reductions import PlannedReduction
from schedir.compiler import compile_program
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from tests.executor.small.models import compiled


def ends(graph: TaskGraph, reduction: PlannedReduction) -> tuple[list[str], list[str]]:
    """Return members and takers, with their devices."""

    def shown(task: int) -> str:
        return f"{graph.label(task)} on {int(graph.device[task])}"

    return [shown(task) for task in reduction.members], [shown(task) for task in reduction.takers]


def test_replicas_sum_in_the_order_of_their_devices_and_all_update() -> None:
    # PipeDream's 1F1B-RR: stage 0 on devices 0 and 1, which take whole mini-batches in turn
    graph = compiled("pipedream", 3, 1, num_mini_batches=4, replicas=(2, 1))
    first = make_plan(graph).reductions[0]
    assert ends(graph, first) == (["0B0 on 0", "0B1 on 1"], ["0U1 on 0", "0U1 on 1"])
    assert (first.stage, first.num_averaged, first.tie) == (0, 2, ())
    assert first.task >= graph.num_compute_tasks


def test_stages_of_a_tie_sum_in_the_order_of_the_stages() -> None:
    graph = compile_program(build_program("gpipe", num_devices=3, num_micro_batches=2), ties=[(0, 2)])
    (tie,) = make_plan(graph).reductions
    # gpipe's backwards run from the last micro-batch to the first
    assert ends(graph, tie) == (["0B0 on 0", "2B0 on 2"], ["0U1 on 0", "2U1 on 2"])
    assert (tie.member_stages, tie.num_averaged, tie.tie) == ((0, 2), 1, (0, 2))


def test_a_tie_on_one_device_is_no_task_of_the_graph() -> None:
    program = build_program("interleaved-1f1b", num_devices=1, num_micro_batches=2, num_mini_batches=2, stages_per_device=2)
    graph = compile_program(program, ties=[(0, 1)])
    found = make_plan(graph).reductions
    assert [(each.task, each.update) for each in found] == [(LOCAL, 1), (LOCAL, 2)]
    assert ends(graph, found[0]) == (["0B1 on 0", "1B1 on 0"], ["0U1 on 0", "1U1 on 0"])


def test_sums_over_replicas_stand_before_those_over_ties() -> None:
    # both hosts of a stage of chimera sum its gradients, then those of the tie
    graph = compile_program(build_program("chimera", num_devices=2, num_micro_batches=2), ties=[(0, 1)])
    assert [each.tie for each in make_plan(graph).reductions] == [(), (), (0, 1)]
