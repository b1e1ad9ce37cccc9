"""Who waits where all stages decide together on their updates."""

from executor.plan.local import LOCAL
from executor.plan.plan import make_plan
from schedir.compiler import compile_program
from schedir.schedules.registry import build_program
from tests.executor.small.models import compiled


def test_every_update_of_a_mini_batch_waits_for_one_decision() -> None:
    program = build_program("1f1b", num_devices=3, num_micro_batches=2, num_mini_batches=2)
    graph = compile_program(program, common_update=True)
    found = make_plan(graph).decisions
    assert [each.update for each in found] == [1, 2]
    assert [each.devices for each in found] == [(0, 1, 2), (0, 1, 2)]
    assert [graph.label(task) for task in found[1].takers] == ["0U3", "1U3", "2U3"]


def test_one_device_decides_for_itself() -> None:
    graph = compile_program(build_program("gpipe", num_devices=1, num_micro_batches=2, num_mini_batches=2), common_update=True)
    assert [(each.task, each.devices) for each in make_plan(graph).decisions] == [(LOCAL, (0,)), (LOCAL, (0,))]


def test_stages_that_decide_by_themselves_wait_for_nobody() -> None:
    assert make_plan(compiled("gpipe", 2, 2)).decisions == ()
