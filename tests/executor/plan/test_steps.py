"""Programs cut into the steps of a trainer."""

import pytest

from executor.plan.endless import Endless, depth_of, period_of
from executor.plan.steps import StepTable
from schedir.compiler import compile_program
from schedir.errors import RefusedError
from schedir.ir.action import Action, Entry, Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.schedules.registry import SCHEDULES, build_program
from tests.executor.small.models import compiled


def shown(graph: TaskGraph, device: int) -> str:
    """One device's tasks, with | between steps."""
    steps = StepTable.of(graph).device_tasks
    return " | ".join(" ".join(graph.label(task) for task in devices[device]) for devices in steps)


def test_pipedream_does_in_a_step_what_its_forwards_need() -> None:
    # the grid of schedir.schedules.pipedream, p = 3, cut by hand before every forward
    graph = compiled("pipedream", 3, 1, num_mini_batches=5)
    assert shown(graph, 0) == "0F0 | 0F1 | 0F2 | 0B0 0U0 0F3 | 0B1 0U1 0F4 | 0B2 0U2 0B3 0U3 0B4 0U4"
    assert shown(graph, 1) == "1F0 | 1F1 | 1B0 1U0 1F2 | 1B1 1U1 1F3 | 1B2 1U2 1F4 | 1B3 1U3 1B4 1U4"
    assert shown(graph, 2) == "2F0 | 2B0 2U0 2F1 | 2B1 2U1 2F2 | 2B2 2U2 2F3 | 2B3 2U3 2F4 | 2B4 2U4"


def test_under_a_flush_a_step_is_a_whole_mini_batch_and_nothing_is_left_to_drain() -> None:
    graph = compiled("1f1b", 2, 2, num_mini_batches=2)
    assert shown(graph, 0) == "0F0 0F1 0B0 0B1 0U1 | 0F2 0F3 0B2 0B3 0U3 | "
    assert shown(graph, 1) == "1F0 1B0 1F1 1B1 1U1 | 1F2 1B2 1F3 1B3 1U3 | "


def test_a_step_of_replicas_has_the_gradients_that_an_update_before_its_forward_waits_for() -> None:
    # 0B1 stands before 0F5 on its own device, but the update behind 0B0 waits for it, and 0F4 stands behind that update
    graph = compiled("pipedream", 3, 1, num_mini_batches=6, replicas=(2, 1))
    assert shown(graph, 0) == "0F0 |  | 0F2 |  | 0B0 0U1 0F4 |  | 0B2 0U3 0B4 0U5"
    assert shown(graph, 1) == " | 0F1 |  | 0F3 | 0B1 | 0U1 0F5 | 0B3 0U3 0B5 0U5"


def test_a_mini_batch_is_finished_by_the_last_of_its_updates() -> None:
    assert StepTable.of(compiled("pipedream", 3, 1, num_mini_batches=5)).finished == ((), (), (), (0,), (1,), (2, 3, 4))
    assert StepTable.of(compiled("gpipe", 3, 2, num_mini_batches=2)).finished == ((0,), (1,), ())


CONTINUOUS = [name for name, schedule in SCHEDULES.items() if schedule.continuous]


def endless(name: str, num_devices: int, num_micro_batches: int, **options: object) -> Endless:
    def build(size: int) -> TaskGraph:
        return compiled(name, num_devices, num_micro_batches, num_mini_batches=size, **options)

    graph = build(2 * num_devices + 8)
    return Endless.continuous(build, depth=depth_of(graph), period=period_of(graph))


def actions_of(steps: Endless, step: int) -> list[list[tuple[object, ...]]]:
    """By device, what every task of a step does and reads, in numbers that count from mini-batch 0."""
    table, place, move = steps.locate(step)
    return [
        [
            (moved.kind, moved.stage, moved.micro_batch, moved.version, moved.horizon, moved.update)
            for task in tasks
            for moved in (table.moved(action, move) for action in table.plan.tasks[task])
        ]
        for tasks in table.device_tasks[place]
    ]


def assert_goes_on_as_the_whole_program(name: str, num_devices: int, num_micro_batches: int, **options: object) -> None:
    steps = endless(name, num_devices, num_micro_batches, **options)
    count = steps.table.graph.program.num_mini_batches + 7
    whole = StepTable.of(compiled(name, num_devices, num_micro_batches, num_mini_batches=count, **options))
    expected = Endless(whole, lambda _: whole.graph, start_up=count, period=1)
    for step in range(count):
        assert actions_of(steps, step) == actions_of(expected, step)
    table, place, move = steps.drain(count)
    drained = [
        [table.moved(action, move) for task in tasks for action in table.plan.tasks[task]] for tasks in table.device_tasks[place]
    ]
    last = [[action for task in tasks for action in whole.plan.tasks[task]] for tasks in whole.device_tasks[count]]
    assert [[(a.kind, a.stage, a.micro_batch, a.version, a.update) for a in own] for own in drained] == [
        [(a.kind, a.stage, a.micro_batch, a.version, a.update) for a in own] for own in last
    ]


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 3), (4, 4)])
def test_endless_steps_are_those_of_a_program_that_is_long_enough(name: str, shape: tuple[int, int]) -> None:
    assert_goes_on_as_the_whole_program(name, *shape)


@pytest.mark.parametrize("name", ["pipedream", "xpipe", "spectrain", "pipeoptim"])
def test_endless_steps_are_right_with_fewer_micro_batches_than_devices(name: str) -> None:
    assert_goes_on_as_the_whole_program(name, 4, 1)
    assert_goes_on_as_the_whole_program(name, 5, 2)


@pytest.mark.parametrize("weights", ["stash", "current"])
@pytest.mark.parametrize("replicas", [(2, 1), (1, 2), (2, 1, 1), (3, 1)])
def test_endless_steps_are_right_with_replicas(replicas: tuple[int, ...], weights: str) -> None:
    assert_goes_on_as_the_whole_program("pipedream", sum(replicas), 2, replicas=replicas, weights=weights)


@pytest.mark.parametrize("recompute", ["always", "except-last"])
def test_endless_steps_are_right_with_recomputation_and_exact_horizons(recompute: str) -> None:
    assert_goes_on_as_the_whole_program("xpipe", 3, 2, recompute=recompute, horizon="exact")
    assert_goes_on_as_the_whole_program("pipedream", 3, 2, recompute=recompute, weights="vertical-sync")


def test_the_names_of_tasks_never_come_again() -> None:
    steps = endless("pipedream", 3, 2, replicas=(2, 1))
    seen: set[int] = set()
    for step in range(70):
        table, place, move = steps.locate(step)
        names = {table.name(task, move) for task in range(table.graph.num_tasks) if table.step[task] == place}
        assert not names & seen
        seen |= names


def test_a_program_that_does_not_repeat_itself_is_refused() -> None:
    def build(size: int) -> TaskGraph:
        """Recompute every third mini-batch."""
        program = build_program("pipedream", num_devices=2, num_micro_batches=1, num_mini_batches=size)
        orders = [[entry for action in order for entry in recomputed(action)] for order in program.orders()]
        changed = Program.from_orders(
            "thirds", orders, num_stages=2, num_micro_batches=1, num_mini_batches=size, weights=program.weights
        )
        return compile_program(changed)

    def recomputed(entry: Entry) -> list[Entry]:
        assert isinstance(entry, Action), "pipedream orders no pairs"
        third = entry.kind is Kind.BACKWARD and entry.micro_batch % 3 == 0
        return [Action(entry.stage, Kind.RECOMPUTE, entry.micro_batch), entry] if third else [entry]

    with pytest.raises(RefusedError, match="thirds does not repeat itself every mini-batch, so it cannot go on without end"):
        Endless.continuous(build, depth=2, period=1)
