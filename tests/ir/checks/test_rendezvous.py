"""Blocking sends: which programs need buffers, and the sends that never end."""

import pytest
from hypothesis import given

from schedir.compiler import compile_program
from schedir.errors import DeadlockError
from schedir.ir.action import Kind
from schedir.ir.checks.rendezvous import check_rendezvous, rendezvous_deadlock
from schedir.ir.graph import TaskGraph
from schedir.ir.shape import Shape
from schedir.schedules.registry import SCHEDULES, build_program
from tests.programs import makespan, written
from tests.strategies import any_graphs


def blocked(name: str, devices: int, micro_batches: int) -> list[str]:
    graph = compile_program(build_program(name, num_devices=devices, num_micro_batches=micro_batches))
    return [f"{send.action} {send.sender}->{send.receiver}" for send in rendezvous_deadlock(graph)]


ON_ONE_DEVICE = [s.name for s in SCHEDULES.values() if s.accepts(Shape(1, 3, 1, s.stages_per_device)) is None]


def test_plain_1f1b_needs_buffered_sends() -> None:
    """Device k stands in the send of its last warm-up forward, the last device in that of its first gradient."""
    assert blocked("1f1b", 4, 8) == ["0F3 0->1", "1F2 1->2", "2F1 2->3", "3B0 3->2"]


@pytest.mark.parametrize("devices", [2, 4])
def test_gpipe_runs_with_blocking_sends(devices: int) -> None:
    assert blocked("gpipe", devices, 4) == []


@pytest.mark.parametrize("name", ON_ONE_DEVICE)
def test_one_device_sends_nothing(name: str) -> None:
    assert blocked(name, 1, 3) == []


# Known problem D16: stages 0, 2 on device 0 and 1, 3 on device 1; device 0 sends 0F1 while device 1 sends 1F0.
D16 = ("0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1")


def test_both_sends_of_a_deadlock_are_named_and_marked() -> None:
    graph = compile_program(written(*D16, m=2, stages=4))

    with pytest.raises(DeadlockError, match=r"^deadlock under blocking sends: ") as error:
        check_rendezvous(graph)

    assert str(error.value) == (
        "deadlock under blocking sends: device 0 sends 0F1 to device 1; device 1 sends 1F0 to device 0: no receiver comes to its "
        "receive, so use buffered sends or another order"
    )
    assert error.value.grid.splitlines() == [
        "device 0 | 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "               ^^^ <-- its send never ends",
        "device 1 | 1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1",
        "           ^^^ <-- its send never ends",
    ]


def test_the_same_order_completes_with_buffered_sends() -> None:
    assert makespan(compile_program(written(*D16, m=2, stages=4))) > 0


def test_a_program_that_runs_is_not_an_error() -> None:
    check_rendezvous(compile_program(build_program("gpipe", num_devices=3, num_micro_batches=2)))


# ---------------------------------------------------------------- reductions, in which no send waits


@pytest.mark.parametrize("replicas", [2, 3])
def test_replicas_of_one_stage_send_nothing(replicas: int) -> None:
    graph = compile_program(written(*(f"0F{j} 0B{j}" for j in range(replicas)), m=replicas, stages=1))

    assert rendezvous_deadlock(graph) == ()


def test_a_device_adds_its_gradient_and_goes_on() -> None:
    """Each device waits at its first update for a gradient that the other has added, though it stands before another update."""
    program = written("0F0 1F0 1B0 0B0 0U1 1U1", "0F1 1F1 1B1 0B1 1U1 0U1", m=2, stages=2)

    assert rendezvous_deadlock(compile_program(program)) == ()


@pytest.mark.parametrize("mini_batches", [1, 2])
def test_all_stages_decide_together_once_a_mini_batch_however_many_of_them_a_device_has(mini_batches: int) -> None:
    """Two stages a device, one micro-batch: every send meets its receive, since nothing else is under way.

    device 0   0F0 send  take 2F0 send            take 2B0 send  take 0B0   then both of its updates
    device 1   take 1F0 send  take 3F0 3B0 send  take 1B0 send              then both of its updates
    """
    program = build_program("interleaved-1f1b", num_devices=2, num_micro_batches=1, num_mini_batches=mini_batches)

    assert rendezvous_deadlock(compile_program(program, common_update=True)) == ()


def test_behind_a_common_update_sends_block_as_before_it() -> None:
    """GPipe's first mini-batch runs; in the second, device 0 stands in the send of 0F3 and device 1 in that of 1B2."""
    program = written("0F0 0F1 0B0 0B1 0F2 0F3 0B2 0B3", "1F0 1F1 1B0 1B1 1F2 1B2 1F3 1B3", m=2, n=2)

    graph = compile_program(program, common_update=True)

    assert [send.action for send in rendezvous_deadlock(graph)] == ["0F3", "1B2"]


def test_a_common_update_behind_sums_over_replicas_waits_for_both() -> None:
    """Stage 0 on two devices, stage 1 on a third: the sum of stage 0 feeds what all three decide by."""
    program = written("0F0 0B0", "0F1 0B1", "1F0 1B0 1F1 1B1", m=2, stages=2)

    assert rendezvous_deadlock(compile_program(program, common_update=True)) == ()


# ---------------------------------------------------------------- receives


def test_a_receive_stands_before_the_first_task_that_needs_it() -> None:
    """The gradient is received before 0R0, not behind the send of 0F1, which would meet nobody."""
    program = written("0F0 0R0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", m=2)

    assert rendezvous_deadlock(compile_program(program, recompute_start="on-gradient")) == ()
    assert rendezvous_deadlock(compile_program(program)) != ()


def test_two_directions_need_buffers() -> None:
    """Both devices send their first activation before they receive the other's."""
    graph = compile_program(written("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1", m=2, stages=2))

    assert [send.action for send in rendezvous_deadlock(graph)] == ["0F0", "0F1"]


def test_a_recomputation_on_the_gradient_receives_for_its_backward() -> None:
    program = build_program("gpipe", num_devices=2, num_micro_batches=2)

    assert rendezvous_deadlock(compile_program(program, recompute="always", recompute_start="on-gradient")) == ()


@pytest.mark.law
@given(any_graphs())
def test_a_program_is_blocked_exactly_where_a_plain_run_gets_stuck(graph: TaskGraph) -> None:
    assert {send.action for send in rendezvous_deadlock(graph)} == sends_of_a_plain_run(graph)


def sends_of_a_plain_run(graph: TaskGraph) -> set[str]:
    """Let all devices step from receive to compute to send until none can, and return what those stuck in a send send."""
    carried = {task.index: int(graph.sources(task.index)[0]) for task in graph.tasks() if task.kind is Kind.TRANSFER}
    steps = [steps_of(graph, device, carried) for device in range(graph.program.num_devices)]
    past: set[int] = set()
    while True:
        heads = [mine[0] for mine in steps if mine]
        met = [head for head in heads if can_end(graph, head, heads=heads, past=past)]
        if not met:
            return {graph.label(carried[what]) for kind, what in heads if kind == "send"}
        past.update(what for kind, what in met if kind == "be past")
        for mine in steps:
            if mine and mine[0] in met:
                mine.pop(0)


def steps_of(graph: TaskGraph, device: int, carried: dict[int, int]) -> list[tuple[str, int]]:
    """Return what a device does for each of its tasks: take what comes over links, compute, send."""
    steps: list[tuple[str, int]] = []
    received: set[int] = set()
    for task in graph.lane_range(device):
        inbound = [source for source in graph.sources(task).tolist() if source in carried and source not in received]
        received.update(inbound)
        steps += [("receive", source) for source in sorted(inbound)]
        steps += [("compute", task)]
        steps += [("send", transfer) for transfer, maker in carried.items() if maker == task]
        steps += [("be past", task)]
    return steps


def can_end(graph: TaskGraph, head: tuple[str, int], *, heads: list[tuple[str, int]], past: set[int]) -> bool:
    kind, what = head
    if kind in {"send", "receive"}:
        return ("send", what) in heads and ("receive", what) in heads
    return kind == "be past" or all(
        is_summed(graph, source, past) for source in graph.sources(what).tolist() if graph.kind[source] == Kind.REDUCE
    )


def is_summed(graph: TaskGraph, reduction: int, past: set[int]) -> bool:
    """Say whether all devices are past the gradients of a reduction, or of the sums that it consists of."""
    return all(
        is_summed(graph, source, past) if graph.kind[source] == Kind.REDUCE else source in past
        for source in graph.sources(reduction).tolist()
    )
