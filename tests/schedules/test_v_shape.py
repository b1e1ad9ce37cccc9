"""ZB-V and V-Half: grids, stored makespans, memory. Their options are tested in test_cost_aware."""

import pytest

from schedir.costs.uniform import UniformCosts
from schedir.errors import RefusedError
from schedir.schedules import v_shape
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of
from tests.schedules.stored import makespans, stored_orders, timed

ZB_V = """\
device 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3*0I2 0W2 0I3 0W3*.
device 1 | .   1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3*1W3*""".splitlines()

V_HALF = """\
device 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 3W1 0F3 0W0 0I1 0W1 3F2 3I2 3W2 3F3 3I3 0I2 3W3*0W2 0I3 0W3*.
device 1 | .   1F0 2F0 1F1 2F1 2I0 1I0 2W0 1F2 2I1 1I1 1W0 2F2 2W1 1F3 1W1 2F3 2I2 1I2 2W2 2I3 1I3 1W2 2W3*1W3*""".splitlines()

SHAPES = [(1, 1), (1, 5), (2, 1), (2, 3), (3, 8), (4, 2), (4, 8), (4, 16), (5, 10), (8, 20)]


def test_the_grids_are_those_of_the_docstring() -> None:
    assert grid_of("zb-v", 2, 4) == ZB_V
    assert grid_of("v-half", 2, 4) == V_HALF
    assert drawn(v_shape.__doc__) == ZB_V + V_HALF


def test_zb_v_is_the_order_that_public_programs_emit() -> None:
    """They differ in the order of the last W alone."""
    assert build_program("zb-v", num_devices=4, num_micro_batches=8).orders() in stored_orders("ZB-V")


@pytest.mark.parametrize(("name", "stored"), [("zb-v", "ZB-V"), ("zb-v", "ZB-V (zbv-formatted)"), ("v-half", "V-Half")])
def test_makespans_are_at_most_the_stored_ones(name: str, stored: str) -> None:
    """Public programs lay them out by heuristics, so a shorter one is as good."""
    for transfer, makespan in makespans(stored):
        assert timed(name, 4, 8, costs=UniformCosts(transfer=transfer)).makespan <= makespan + 1e-9


@pytest.mark.parametrize(("devices", "micro_batches"), SHAPES)
def test_activations_alive_are_those_of_the_paper(devices: int, micro_batches: int) -> None:
    """Section 4: p and (p + 2) // 2 micro-batches, each of two stages."""
    assert max(timed("zb-v", devices, micro_batches).live) <= 2 * devices
    assert max(timed("v-half", devices, micro_batches).live) <= 2 * ((devices + 2) // 2)


def test_the_limit_is_used_on_every_device() -> None:
    assert timed("zb-v", 4, 8).live == (8, 8, 8, 8)
    assert timed("v-half", 4, 8).live == (6, 6, 6, 6)


@pytest.mark.parametrize(("devices", "micro_batches"), [(1, 1), (2, 3), (3, 5), (4, 7), (4, 16), (8, 32)])
def test_devices_of_zb_v_never_wait_once_they_work(devices: int, micro_batches: int) -> None:
    """From m = 2p - 1 on a device's span is its work, 6 m slots for F = I = W = 1, and p - 1 until the last one begins."""
    found = timed("zb-v", devices, micro_batches)

    assert set(found.spans) == {6 * micro_batches}
    assert found.makespan == 6 * micro_batches + devices - 1


def test_one_more_mini_batch_costs_its_work_alone() -> None:
    """p = 4, m = 8: 6 x 8 slots."""
    assert timed("zb-v", 4, 8, num_mini_batches=2).makespan - timed("zb-v", 4, 8).makespan == 48


@pytest.mark.parametrize(("devices", "micro_batches", "makespan"), [(4, 4, 27), (6, 7, 47), (2, 1, 9)])
def test_with_few_micro_batches_weight_gradients_fill_the_gaps_of_zb_v(devices: int, micro_batches: int, makespan: float) -> None:
    """The pattern alone takes 30, 50 and 10."""
    assert timed("zb-v", devices, micro_batches).makespan == makespan


@pytest.mark.parametrize("devices", [1, 3, 4, 6, 8])
def test_the_candidate_that_is_known_to_be_best_is_the_one_that_is_found(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known = build_program("v-half", num_devices=devices, num_micro_batches=4 * devices)
    monkeypatch.setattr(v_shape, "V_HALF_BEST", ())

    assert build_program("v-half", num_devices=devices, num_micro_batches=4 * devices) == known


@pytest.mark.parametrize(("devices", "micro_batches"), [(2, 6), (3, 7), (4, 8), (5, 10), (6, 12), (8, 24)])
def test_v_half_has_at_most_half_the_bubble_of_1f1b(devices: int, micro_batches: int) -> None:
    """The paper, table 1. On the same work 1F1B idles (p - 1)(2F + 2B) = 6(p - 1) slots."""
    found = timed("v-half", devices, micro_batches)

    assert found.makespan - 6 * micro_batches <= 3 * (devices - 1)


def test_a_device_hosts_two_stages_in_a_v() -> None:
    found = timed("zb-v", 3, 4).graph

    assert found.stage_devices() == ((0,), (1,), (2,), (2,), (1,), (0,))


@pytest.mark.parametrize("name", ["zb-v", "v-half"])
def test_the_order_of_a_mini_batch_does_not_depend_on_how_many_there_are(name: str) -> None:
    once = build_program(name, num_devices=3, num_micro_batches=7)
    twice = build_program(name, num_devices=3, num_micro_batches=7, num_mini_batches=2)

    assert [order[: len(order) // 2] for order in twice.orders()] == list(once.orders())


@pytest.mark.parametrize("name", ["zb-v", "v-half"])
def test_other_than_two_stages_a_device_are_refused(name: str) -> None:
    with pytest.raises(RefusedError, match=rf"^{name} does not take this shape: its V has two stages per device, but .* is 1"):
        build_program(name, num_devices=2, num_micro_batches=2, stages_per_device=1)
