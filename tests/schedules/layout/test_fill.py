"""Weight gradients in the gaps of an order, when a wait is worth one, and where memory asks for one."""

import pytest

from schedir.schedules.layout.fill import fill_weight_grads
from schedir.schedules.layout.orders import Way, Ways
from schedir.schedules.layout.times import SlotTimes
from tests.schedules.drawing import coded, homes_of, text


def filled(
    *orders: str, transfer: float = 0.0, limit: int = 9, least_wait: float = 1.0, times: SlotTimes | None = None
) -> list[str] | None:
    """Return the text of the orders with W."""
    homes = homes_of(orders)
    by = times or SlotTimes.split(len(homes), transfer)
    found = fill_weight_grads(coded(*orders), homes, by, limit=limit, least_wait=least_wait)
    return None if found is None else text(found, Ways((Way.straight(homes, 9),)))


def test_a_wait_as_long_as_a_weight_gradient_is_filled_and_the_rest_stands_at_the_end() -> None:
    """Device 0 waits for I1 of device 1 in slot 4; device 1 never waits."""
    assert filled("0F0 0F1 0I0 0I1", "1F0 1I0 1F1 1I1") == ["0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"]


def test_a_weight_gradient_that_stands_there_already_is_placed_anew() -> None:
    assert filled("0F0 0F1 0I0 0I1 0W1 0W0", "1F0 1I0 1W0 1F1 1I1 1W1") == filled("0F0 0F1 0I0 0I1", "1F0 1I0 1F1 1I1")


@pytest.mark.parametrize(("least_wait", "second"), [(0.0, "0W0 0I1 0W1"), (0.5, "0W0 0I1 0W1"), (1.0, "0I1 0W0 0W1")])
def test_shorter_waits_are_filled_where_they_are_worth_it(least_wait: float, second: str) -> None:
    """B takes 0.8 on device 1, which ends I0 at 2.8 and I1 at 4.6; device 0 ends its I0 at 3.8 and so waits for 0.8."""
    times = SlotTimes([1.0, 1.0], [1.0, 0.8], [1.0, 0.8], [1.0, 1.0], [0.0, 0.0])
    found = filled("0F0 0F1 0I0 0I1", "1F0 1I0 1F1 1I1", times=times, least_wait=least_wait)

    assert found is not None
    assert found[0] == f"0F0 0F1 0I0 {second}"


def test_where_nothing_waits_no_weight_gradient_is_put_in() -> None:
    assert filled("0F0 0I0 0F1 0I1", least_wait=0.0) == ["0F0 0I0 0F1 0I1 0W0 0W1"]


def test_memory_that_is_full_asks_for_a_weight_gradient() -> None:
    assert filled("0F0 0I0 0F1 0I1 0F2 0I2", limit=2) == ["0F0 0I0 0F1 0I1 0W0 0F2 0I2 0W1 0W2"]


def test_an_order_that_needs_more_memory_is_none() -> None:
    assert filled("0F0 0F1 0I0 0I1", limit=1) is None


def test_an_order_that_blocks_is_none() -> None:
    """Device 0 wants I0 before the F1 that device 1 waits for with its I0 behind."""
    assert filled("0F0 0I0 0F1 0I1", "1F0 1F1 1I0 1I1") is None
