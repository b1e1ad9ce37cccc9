"""The list scheduler: what a device runs when, and what its memory admits."""

import pytest

from schedir.schedules.layout.blocks import vee
from schedir.schedules.layout.listing import Listed, Priority, backwards_first, forwards_first, list_orders
from schedir.schedules.layout.orders import SPLIT, WHOLE, Way, Ways, peak_live
from schedir.schedules.layout.times import SlotTimes
from tests.schedules.drawing import text


def straight(num_devices: int, num_micro_batches: int) -> Ways:
    return Ways((Way.straight(range(num_devices), num_micro_batches),))


def v_shaped(num_devices: int, num_micro_batches: int) -> Ways:
    return Ways((Way.straight([*range(num_devices), *reversed(range(num_devices))], num_micro_batches),))


def whole(listed: Listed | None, ways: Ways) -> list[str]:
    assert listed is not None
    return text(listed.orders, ways, WHOLE)


def split(listed: Listed | None, ways: Ways) -> list[str]:
    assert listed is not None
    return text(listed.orders, ways, SPLIT)


def test_whole_backwards_first_make_1f1b() -> None:
    listed = list_orders(straight(2, 3), backwards_first(2), SlotTimes.whole(2), limit=2)

    assert listed is not None
    assert whole(listed, straight(2, 3)) == ["0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"]
    assert listed.end == 12  # (m + p - 1)(F + B)


def test_forwards_first_fill_the_memory_first() -> None:
    listed = list_orders(straight(2, 3), forwards_first(2), SlotTimes.whole(2), limit=3)

    assert whole(listed, straight(2, 3))[0] == "0F0 0F1 0F2 0B0 0B1 0B2"


def test_a_weight_gradient_that_stands_apart_runs_when_nothing_else_can() -> None:
    """Device 0 has no forward left when I1 is under way on device 1."""
    listed = list_orders(straight(2, 2), backwards_first(2), SlotTimes.split(2), limit=4)

    assert split(listed, straight(2, 2)) == ["0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"]


def test_a_gradient_may_leave_before_its_backward_ends() -> None:
    """As if I stood before W: the gradient arrives after 1 of 2 slots."""
    late = list_orders(straight(2, 1), backwards_first(2), SlotTimes.whole(2), limit=1)
    early = list_orders(straight(2, 1), backwards_first(2), SlotTimes.whole(2, gradient=1.0), limit=1)

    assert late is not None
    assert early is not None
    assert (late.end, early.end) == (6, 5)


def test_hand_overs_to_another_device_take_their_time() -> None:
    """F0, over, F1, I1, over, I0 and the W behind it."""
    listed = list_orders(straight(2, 1), backwards_first(2), SlotTimes.split(2, transfer=0.5), limit=1)
    on_one = list_orders(Ways((Way.straight((0, 0), 1),)), backwards_first(2), SlotTimes.split(2, transfer=0.5), limit=2)

    assert listed is not None
    assert on_one is not None
    assert (listed.end, on_one.end) == (6, 6)
    assert split(on_one, Ways((Way.straight((0, 0), 1),))) == ["0F0 1F0 1I0 0I0 1W0 0W0"]


def test_memory_that_the_first_forwards_take_up_makes_it_stick() -> None:
    """A V of one device: near forwards fill both places, and the far one that would free them has no room."""
    assert list_orders(v_shaped(1, 2), Priority((0, 9), (0, 9), 1), SlotTimes.split(2), limit=2) is None


def test_with_reservation_no_forward_takes_the_place_of_one_with_a_lower_number() -> None:
    listed = list_orders(v_shaped(1, 2), Priority((0, 0), (0, 0), 1), SlotTimes.split(2), limit=2, reserve=True)

    assert split(listed, v_shaped(1, 2)) == ["0F0 1F0 1I0 0I0 1W0 0F1 0W0 1F1 1I1 0I1 1W1 0W1"]


@pytest.mark.parametrize("limit", [2, 3, 5, 8])
@pytest.mark.parametrize("transfer", [0.0, 0.1, 30.0])
def test_a_block_that_keeps_the_limit_never_sticks_whatever_the_times(limit: int, transfer: float) -> None:
    pipeline = v_shaped(4, 9)
    block = vee(4, legs=(3, 3, 3, 3), turns=(1, 1, 1)).within(limit, [(d, 7 - d) for d in range(4)])
    listed = list_orders(pipeline, block.priority, SlotTimes.split(8, transfer), limit=limit, reserve=True)

    assert listed is not None
    assert peak_live(listed.orders, 8) <= limit
    assert sorted(code for order in listed.orders for code in order) == [code for code in range(24) for _ in range(9)]
