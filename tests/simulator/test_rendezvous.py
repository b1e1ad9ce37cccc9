"""Blocking sends."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.errors import DeadlockError
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.checks.rendezvous import rendezvous_deadlock
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.ir.program import Program
from simulator.network import Conditions, Shared, SharingRule, Speed
from simulator.rendezvous import RendezvousEngine
from tests.simulator.doubles import graph_of, random_times
from tests.strategies import graphs


def makespan(graph: TaskGraph, **costs: Any) -> float:
    return float(RendezvousEngine(graph, UniformCosts(**costs).times(graph)).run().end.max())


def test_1f1b_deadlocks_and_the_sends_that_block_each_other_are_named() -> None:
    with pytest.raises(DeadlockError, match="device 0 sends 0F1 to device 1; device 1 sends 1B0 to device 0") as caught:
        makespan(graph_of("1f1b", 2, 2))

    assert "0F1" in caught.value.grid


def test_known_problem_d16_names_both_sends() -> None:
    # stages 0 and 2 on device 0, 1 and 3 on device 1: … SEND 0F1, RECV 2F0, 2F0 against … SEND 1F0, RECV 1F1, 1F1
    forward, backward = Kind.FORWARD, Kind.BACKWARD
    tail = [(stage, backward, j) for j in (0, 1) for stage in (3, 2, 1, 0)]
    orders = [
        [(0, forward, 0), (0, forward, 1), (2, forward, 0), (2, forward, 1)],
        [(1, forward, 0), (1, forward, 1), (3, forward, 0), (3, forward, 1)],
    ]
    entries = [
        [Action(*each) for each in order + [each for each in tail if each[0] % 2 == device]] for device, order in enumerate(orders)
    ]
    graph = compile_program(Program.from_orders("d16", entries, num_stages=4, num_micro_batches=2))

    with pytest.raises(DeadlockError, match="device 0 sends 0F1 to device 1; device 1 sends 1F0 to device 0"):
        makespan(graph)


def test_a_sender_waits_for_its_receiver() -> None:
    # device 0   F0 F1 .  .  .  B1 B0      F takes 1 on stage 0 and 3 on stage 1: 0F1 is ready at 2 and taken at 4;
    # device 1   .  F0 F0 F0 F1 F1 F1 …    were sends buffered, device 0 would be free at 2
    graph = graph_of("gpipe", 2, 3)
    times = UniformCosts(forward=(1.0, 3.0), backward=1.0).times(graph)

    spans = RendezvousEngine(graph, times).run()

    starts = {graph.label(task): spans.start[task] for task in range(graph.num_compute_tasks)}
    assert [starts[f"0F{j}"] for j in range(3)] == [0.0, 1.0, 4.0]
    assert [starts[f"1F{j}"] for j in range(3)] == [1.0, 4.0, 7.0]


def test_a_transfer_keeps_the_sender_until_it_has_left_and_the_receiver_until_it_is_in() -> None:
    graph = graph_of("gpipe", 2, 2)

    # Latency 0.5, which keeps a receiver, but no sender. Device 1: 1F0 from 1.5 to 2.5, takes 0F1 until 3, 1F1 to 4, 1B1 to 6.
    # Device 0 takes 1B1 until 6.5, 0B1 to 8.5, and only then 1B0, which is ready at 8, until 9; 0B0 to 11.
    assert makespan(graph, transfer=0.5) == 11.0


def test_a_device_takes_one_message_after_the_other() -> None:
    # Device 1 stands before the pair (1F1;1B0) from 6.5 on. It takes 0F1, ready at 10, until 10.5, then 2B0, also ready at 10,
    # until 11: latency 0.5, forward 5 on stage 0 and 1 on the others, backward 2
    first, pair = Action(1, Kind.FORWARD, 0), Overlapped(Action(1, Kind.FORWARD, 1), Action(1, Kind.BACKWARD, 0))
    orders: list[list[Entry]] = [
        [Action(0, Kind.FORWARD, 0), Action(0, Kind.FORWARD, 1), Action(0, Kind.BACKWARD, 0), Action(0, Kind.BACKWARD, 1)],
        [first, pair, Action(1, Kind.BACKWARD, 1)],
        [Action(2, Kind.FORWARD, 0), Action(2, Kind.BACKWARD, 0), Action(2, Kind.FORWARD, 1), Action(2, Kind.BACKWARD, 1)],
    ]
    graph = compile_program(Program.from_orders("pair", orders, num_stages=3, num_micro_batches=2))

    spans = RendezvousEngine(graph, UniformCosts(forward=(5, 1, 1), backward=2, transfer=0.5).times(graph)).run()

    assert spans.start[[graph.label(task) for task in range(graph.num_tasks)].index(str(pair))] == 11.0


def starts(graph: TaskGraph, times: TaskTimes, conditions: Conditions | None = None) -> dict[str, float]:
    """Return the starts of all compute tasks, by label and device."""
    spans = RendezvousEngine(graph, times, conditions).run()
    count = graph.num_compute_tasks
    return {f"{graph.label(task)} on {graph.device[task]}": float(spans.start[task]) for task in range(count)}


def test_an_update_waits_for_the_sum_of_all_replicas() -> None:
    """pipedream replicas 2, 1, F=1 B=2, reduction 1. Stage 1: F0 B0 F1 B1 in [1, 7]; B on device 0 in [4, 6], on 1 in [7, 9]: the
    sum is there at 10. Device 1 keeps its output from 1 to 4, and has nothing else to do."""
    graph = graph_of("pipedream", 3, 1, mini_batches=2, replicas=(2, 1))
    times = UniformCosts(forward=1.0, backward=2.0).times(graph)
    found = starts(graph, TaskTimes(np.where(graph.kind == Kind.REDUCE, 1.0, times.duration)))

    assert (found["0B0 on 0"], found["0B1 on 1"]) == (4.0, 7.0)
    updates = {task: at for task, at in found.items() if task.startswith("0U")}
    assert list(updates.values()) == [10.0, 10.0]


def test_a_slow_link_keeps_both_sides_for_as_long_as_it_takes() -> None:
    """gpipe p=2 m=2, F=1 B=2, half a second on a link, twice as much forwards, where it works at half its speed: 0F0 leaves in
    [1, 2], 0F1 (in [2, 3]) in [3, 4]; 1F1 in [4, 5], 1B1 to 7, its gradient in [7, 7.5]; 0B1 and 1B0 in [7.5, 9.5], 0B0 from 10."""
    graph = graph_of("gpipe", 2, 2)
    times = UniformCosts(forward=1.0, backward=2.0).times(graph)
    forwards = next(lane for lane, each in enumerate(graph.lanes) if each.kind is LaneKind.LINK and each.device == 0)
    slow = Conditions(speeds={forwards: Speed(since=(0.0,), factor=(0.5,))})
    found = starts(graph, TaskTimes(np.where(graph.kind == Kind.TRANSFER, 0.5, times.duration)), slow)

    assert [found[f"{task} on 0"] for task in ("0F0", "0F1", "0B1", "0B0")] == [0.0, 2.0, 7.5, 10.0]
    assert [found[f"{task} on 1"] for task in ("1F0", "1F1", "1B1", "1B0")] == [2.0, 4.0, 5.0, 7.5]


def test_devices_that_share_a_core_wait_for_each_other_all_the_same() -> None:
    """gpipe p=2 m=2, F=B=1 on one core: 0F1 and 1F0 share it in [1, 3], 0B1 and 1B0 in [5, 7]."""
    graph = graph_of("gpipe", 2, 2)
    core = Conditions(shared=(Shared(SharingRule.FAIR, {0: 1.0, 1: 1.0}, 1.0),))
    found = starts(graph, UniformCosts(forward=1.0, backward=1.0).times(graph), core)

    assert [found[f"{task} on 0"] for task in ("0F0", "0F1", "0B1", "0B0")] == [0.0, 1.0, 5.0, 7.0]
    assert [found[f"{task} on 1"] for task in ("1F0", "1F1", "1B1", "1B0")] == [1.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_one_device_sends_nothing(name: str) -> None:
    assert makespan(graph_of(name, 1, 4)) == 12.0


@given(graph=graphs(), seed=st.integers(0, 2**32))
def test_a_run_ends_exactly_where_no_circle_of_sends_is_found_and_is_never_faster_than_buffered(
    graph: TaskGraph, seed: int
) -> None:
    times = random_times(graph, seed)
    blocked = bool(rendezvous_deadlock(graph))

    try:
        spans = RendezvousEngine(graph, times).run()
    except DeadlockError:
        assert blocked
    else:
        assert not blocked
        assert (spans.start >= evaluate(graph, times).start).all()
