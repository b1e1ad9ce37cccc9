"""Things that lanes share, and speeds that change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.costs.uniform import UniformCosts
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.order.in_order import Spans, TaskTimes
from simulator.clock import Clock
from simulator.engine import SimpyEngine
from simulator.network import Conditions, Network, Shared, SharingRule, Speed
from tests.simulator.doubles import graph_of

Request = tuple[int, float, float]
"""Lane, when, how much work in seconds alone."""


def serve(conditions: Conditions, *requests: Request, num_lanes: int = 4) -> list[tuple[float, float]]:
    """Return start and end of each request."""
    clock = Clock()
    network = Network(clock, conditions, num_lanes)
    spans: dict[int, tuple[float, float]] = {}

    def served(task: int, lane: int, start: float) -> None:
        assert lane == requests[task][0]
        spans[task] = (start, clock.now)

    network.served = served
    for task, (lane, at, work) in enumerate(requests):
        network.request(task, lane, at, work=work)
    clock.run()
    return [spans[task] for task in range(len(requests))]


def one(rule: SharingRule, demand: dict[int, float], capacity: float) -> Conditions:
    return Conditions(shared=(Shared(rule, demand, capacity),))


FAIR, FIFO = SharingRule.FAIR, SharingRule.FIFO


def test_two_tasks_that_share_fairly_each_take_twice_as_long() -> None:
    assert serve(one(FAIR, {0: 1, 1: 1}, 1), (0, 0.0, 2.0), (1, 0.0, 2.0)) == [(0.0, 4.0), (0.0, 4.0)]


def test_a_task_is_slowed_only_while_the_other_works() -> None:
    # lane 0 alone to 1 (1 s done), half speed from 1 to 3 (1 s done), alone again: 1 s left
    assert serve(one(FAIR, {0: 1, 1: 1}, 1), (0, 0.0, 3.0), (1, 1.0, 1.0)) == [(0.0, 4.0), (1.0, 3.0)]


def test_what_has_room_for_all_slows_nobody() -> None:
    assert serve(one(FAIR, {0: 1, 1: 1}, 2), (0, 0.0, 2.0), (1, 0.0, 3.0)) == [(0.0, 2.0), (0.0, 3.0)]


def test_who_asks_for_little_gets_it_and_the_others_divide_the_rest() -> None:
    # capacity 10: lane 0 asks for 2 and gets it; lanes 1 and 2 ask for 8 each and get 4, half of it
    found = serve(one(FAIR, {0: 2, 1: 8, 2: 8}, 10), (0, 0.0, 4.0), (1, 0.0, 2.0), (2, 0.0, 2.0))

    assert found == [(0.0, 4.0), (0.0, 4.0), (0.0, 4.0)]


def test_the_fullest_of_several_things_decides() -> None:
    # lane 0 uses both cards, lanes 1 and 2 the second: there each gets a third, and lane 3 the rest of the first, 2/3
    conditions = Conditions(shared=(Shared(FAIR, {0: 1, 3: 1}, 1), Shared(FAIR, {0: 1, 1: 1, 2: 1}, 1)))

    found = serve(conditions, (0, 0.0, 1.0), (1, 0.0, 1.0), (2, 0.0, 1.0), (3, 0.0, 2.0))

    assert [end for _, end in found] == pytest.approx([3.0, 3.0, 3.0, 3.0])


def test_fifo_serves_one_after_the_other_in_the_order_of_requests() -> None:
    found = serve(one(FIFO, {0: 1, 1: 1, 2: 1}, 1), (2, 0.5, 1.0), (0, 0.0, 2.0), (1, 1.0, 3.0))

    assert found == [(2.0, 3.0), (0.0, 2.0), (3.0, 6.0)]


def test_a_task_starts_when_it_is_first_in_every_queue() -> None:
    # lane 1 needs both cards: it waits for lane 0 on the first, and lane 2, behind it on the second, for lane 1
    conditions = Conditions(shared=(Shared(FIFO, {0: 1, 1: 1}, 1), Shared(FIFO, {1: 1, 2: 1}, 1)))

    assert serve(conditions, (0, 0.0, 2.0), (1, 0.1, 1.0), (2, 0.2, 1.0)) == [(0.0, 2.0), (2.0, 3.0), (3.0, 4.0)]


def test_tasks_of_one_lane_wait_for_each_other_under_fair_sharing_too() -> None:
    assert serve(one(FAIR, {0: 1, 1: 1}, 1), (0, 0.0, 1.0), (0, 0.0, 1.0)) == [(0.0, 1.0), (1.0, 2.0)]


def test_speed_holds_from_its_time_on_also_within_a_task() -> None:
    conditions = Conditions(speeds={0: Speed(since=(0.0, 2.0, 4.0), factor=(1.0, 0.5, 2.0))})

    # 2 s of work to 2, 1 s of work to 4, the remaining 4 s of work in 2 s
    assert serve(conditions, (0, 0.0, 7.0)) == [(0.0, 6.0)]


def test_a_device_that_stands_still_for_a_while_finishes_later() -> None:
    conditions = Conditions(speeds={0: Speed(since=(0.0, 1.0, 5.0), factor=(1.0, 0.0, 1.0))})

    assert serve(conditions, (0, 0.0, 2.0)) == [(0.0, 6.0)]


def test_speed_multiplies_the_share() -> None:
    conditions = Conditions(shared=(Shared(FAIR, {0: 1, 1: 1}, 1),), speeds={0: Speed(since=(0.0,), factor=(0.5,))})

    assert serve(conditions, (0, 0.0, 1.0), (1, 0.0, 2.0)) == [(0.0, 4.0), (0.0, 4.0)]


def test_a_task_that_is_never_slowed_ends_at_start_plus_work_to_the_last_bit() -> None:
    ((_, end),) = serve(one(FAIR, {0: 3, 1: 3}, 3), (0, 0.1, 0.2))

    assert end == 0.1 + 0.2


def ends_in_small_steps(requests: list[Request], capacity: float) -> list[float]:
    """Return the ends under processor sharing with equal demands of 1, by counting how much each gets in every millisecond."""
    step, now, left = 1e-3, 0.0, [work for _, _, work in requests]
    ends = [0.0] * len(requests)
    while any(not end for end in ends):
        busy = [k for k, (_, at, _) in enumerate(requests) if at <= now + step / 2 and not ends[k]]
        now += step
        for k in busy:
            left[k] -= step * min(1.0, capacity / len(busy))
            ends[k] = now if left[k] <= step / 2 else 0.0
    return ends


@given(
    requests=st.lists(st.tuples(st.floats(0, 3), st.floats(0.1, 2)), min_size=1, max_size=5),
    capacity=st.sampled_from((0.5, 1.0, 2.0, 2.5)),
)
def test_fair_sharing_is_what_small_steps_add_up_to(requests: list[tuple[float, float]], capacity: float) -> None:
    asked = [(lane, at, work) for lane, (at, work) in enumerate(requests)]

    found = serve(one(FAIR, dict.fromkeys(range(5), 1.0), capacity), *asked, num_lanes=5)

    assert [end for _, end in found] == pytest.approx(ends_in_small_steps(asked, capacity), abs=0.02)


def spans_of(graph: TaskGraph, times: TaskTimes, conditions: Conditions) -> dict[str, tuple[float, float]]:
    """Return (start, release) of all tasks by label and lane."""
    spans: Spans = SimpyEngine(graph, times, conditions).run()
    return {
        f"{graph.label(task)} on {graph.lanes[graph.lane[task]]}": (float(spans.start[task]), float(spans.release[task]))
        for task in range(graph.num_tasks)
    }


def with_transfers_of(graph: TaskGraph, seconds: float) -> TaskTimes:
    times = UniformCosts(forward=1.0, backward=1.0).times(graph)
    duration = times.duration.copy()
    duration[graph.num_compute_tasks :] = seconds
    return TaskTimes(duration)


def test_devices_that_share_one_core_slow_each_other_down() -> None:
    graph = graph_of("gpipe", 2, 2)
    core = one(FAIR, {0: 1.0, 1: 1.0}, 1.0)

    found = spans_of(graph, UniformCosts(forward=1.0, backward=1.0).times(graph), core)

    assert found["0F1 on device 0"] == (1.0, 3.0)
    assert found["1F0 on device 1"] == (1.0, 3.0)
    assert found["1F1 on device 1"] == (3.0, 4.0)


def leaving_device_1(rule: SharingRule) -> dict[str, tuple[float, float]]:
    """Return spans of the transfers that device 1 of 3 sends, under 1F1B with m = 3 and 2 s a transfer, over one card."""
    graph = graph_of("1f1b", 3, 3)
    lanes = {lane: 1.0 for lane, found in enumerate(graph.lanes) if found.kind is LaneKind.LINK and found.device == 1}
    assert len(lanes) == 2
    found = spans_of(graph, with_transfers_of(graph, 2.0), one(rule, lanes, 1.0))
    return {name: span for name, span in found.items() if "link 1->" in name and span[0] > 10}


def test_gradients_and_activations_that_leave_by_one_card_slow_each_other_down() -> None:
    # 1B0 leaves at 11 and has 1 s left when 1F2 leaves at 12: both at half speed to 14, when 1B1, ready at 13, follows 1B0;
    # 1F2 has 1 s left, at half speed to 16; 1B1 has then 1 s left and is alone
    found = leaving_device_1(FAIR)

    assert found["1T0 on link 1->0"] == (11.0, 14.0)
    assert found["1T2 on link 1->2"] == (12.0, 16.0)
    assert found["1T1 on link 1->0"] == (14.0, 17.0)


def test_gradients_and_activations_that_leave_by_one_card_queue_under_fifo() -> None:
    found = leaving_device_1(FIFO)

    assert found["1T0 on link 1->0"] == (11.0, 13.0)
    assert found["1T2 on link 1->2"] == (13.0, 15.0)
    assert found["1T1 on link 1->0"] == (15.0, 17.0)


def test_lanes_that_share_nothing_are_left_alone_by_the_network() -> None:
    graph = graph_of("1f1b", 3, 4)
    times = with_transfers_of(graph, 0.25)
    unused = Conditions(speeds={0: Speed(since=(0.0,), factor=(1.0,))})

    assert spans_of(graph, times, unused) == spans_of(graph, times, Conditions())


def test_nor_does_the_end_move_while_others_come_and_go_that_do_not_slow_it() -> None:
    """0.1 + 0.7 is not what (0.7 less what is done at 0.3) more than 0.3 rounds to: nothing may be counted anew."""
    room_for_both = one(FAIR, {0: 1, 1: 1}, 2)
    (_, end), _, _ = serve(room_for_both, (0, 0.1, 0.7), (1, 0.3, 0.1), (1, 0.45, 0.1))

    assert 0.3 + (0.7 - (0.3 - 0.1)) != 0.1 + 0.7
    assert end == 0.1 + 0.7
