"""DualPipeV and DualPipe: orders, stored values, overlapped pairs, refusals. D19 is a known problem."""

import pytest

from schedir.costs.uniform import UniformCosts
from schedir.errors import RefusedError
from schedir.ir.action import Action, Kind, Overlapped
from schedir.schedules import dualpipe
from schedir.schedules.registry import build_program
from tests.schedules.drawing import text_of
from tests.schedules.stored import makespans, stored_orders, timed

ORDER = [
    "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1 3F2&0B0 3B2 3F3&0B1 3B3 0I2 0W2 0I3 0W3",
    "1F0 2F0 1F1 2F1 1F2 2B0 2F2&1B0 1F3&2B1 2F3&1B1 2B2 1B2 2I3 1I3 2W3 1W3",
]


def test_the_order_is_that_of_the_docstring() -> None:
    program = build_program("dualpipev", num_devices=2, num_micro_batches=4)
    written = [" ".join(short(entry) for entry in order) for order in program.orders()]

    assert written == ORDER
    assert all(order in (dualpipe.__doc__ or "") for order in ORDER)


def short(entry: Action | Overlapped) -> str:
    return f"{entry.forward}&{entry.backward}" if isinstance(entry, Overlapped) else str(entry)


def test_dualpipev_is_what_three_public_programs_emit() -> None:
    program = build_program("dualpipev", num_devices=4, num_micro_batches=8)

    assert [program.orders()] * 3 == stored_orders("DualPipeV")


def test_makespans_are_the_stored_ones() -> None:
    for transfer, makespan in makespans("DualPipeV"):
        assert timed("dualpipev", 4, 8, costs=UniformCosts(transfer=transfer)).makespan == pytest.approx(makespan)


# D19: p = 8, m = 20, F = 1, B = 2 = I + W; (p/2 - 1)(F&B + B - 3W) of the whole makespan on the innermost devices.
@pytest.mark.parametrize(("overlapped", "idle"), [(None, 6), (3, 6), (2, 3), (2.5, 4.5)])
def test_idle_time_of_the_innermost_devices_follows_the_reports_formula(overlapped: float | None, idle: float) -> None:
    found = timed("dualpipe", 8, 20, costs=UniformCosts(overlapped=overlapped))

    assert max(found.idle) == found.idle[3] == found.idle[4] == pytest.approx(idle)


def test_outer_devices_have_fewer_pairs_and_so_less_idle_time() -> None:
    """Device h from its end has 2(n - 2q + h + 1) + q - h - 1 pairs, the innermost one less (n = 10, q = 4): 9, 10, 11, 11. With
    F&B = 2 each makes the device 1 less busy."""
    assert timed("dualpipe", 8, 20, costs=UniformCosts(overlapped=2)).idle == (1, 2, 3, 3, 3, 3, 2, 1)
    assert set(timed("dualpipe", 8, 20).idle) == {6}


# As for DualPipe with p/2 = p: (p - 1)(F&B + B - 3W).
@pytest.mark.parametrize(("devices", "micro_batches", "overlapped", "idle"), [(4, 8, 3, 6), (4, 12, 2, 3), (8, 20, 2.5, 10.5)])
def test_dualpipev_idles_as_one_half_of_a_dualpipe_of_twice_the_devices(
    *, devices: int, micro_batches: int, overlapped: float, idle: float
) -> None:
    found = timed("dualpipev", devices, micro_batches, costs=UniformCosts(overlapped=overlapped))

    assert max(found.idle) == found.idle[devices - 1] == pytest.approx(idle)


# (q - 1)(F&B + F - B + max(0, I - W)) for I <= F, derived from the order: q = p/2 = 3 and F&B = 4 throughout.
@pytest.mark.parametrize(
    ("forward", "input_grad", "weight_grad", "idle"), [(2, 1, 2, 6), (2, 2, 1, 8), (1.5, 1, 1.5, 6), (2, 1, 0.5, 10)]
)
def test_unequal_parts_idle_as_the_order_says(*, forward: float, input_grad: float, weight_grad: float, idle: float) -> None:
    costs = UniformCosts(forward=forward, input_grad=input_grad, weight_grad=weight_grad, overlapped=4)

    assert timed("dualpipe", 6, 18, costs=costs).idle[2] == pytest.approx(idle)


@pytest.mark.parametrize(("devices", "micro_batches"), [(2, 4), (4, 8), (8, 20)])
def test_activations_alive_are_p_plus_1(devices: int, micro_batches: int) -> None:
    assert timed("dualpipe", devices, micro_batches).live == (devices + 1,) * devices
    assert timed("dualpipev", devices, micro_batches).live == (2 * devices + 1,) * devices


def test_both_directions_of_dualpipe_run_the_same_order() -> None:
    """The second half of the micro-batches enters at the last device."""
    first, *_, last = text_of("dualpipe", 4, 8)

    assert first == (
        "0F0 0F1 0F2 3F4 3I4 3W4 3F5 (0F3;3B5)OVERLAP_F_B (3F6;0B0)OVERLAP_F_B 3B6 (3F7;0B1)OVERLAP_F_B 3B7 0I2 0W2 0I3 0W3"
    )
    assert last == (
        "0F4 0F5 0F6 3F0 3I0 3W0 3F1 (0F7;3B1)OVERLAP_F_B (3F2;0B4)OVERLAP_F_B 3B2 (3F3;0B5)OVERLAP_F_B 3B3 0I6 0W6 0I7 0W7"
    )


def test_every_stage_of_dualpipe_has_two_copies() -> None:
    assert timed("dualpipe", 4, 8).graph.stage_devices() == ((0, 3), (1, 2), (1, 2), (0, 3))


def test_a_forward_meets_a_backward_of_another_micro_batch() -> None:
    program = build_program("dualpipev", num_devices=4, num_micro_batches=8)
    pairs = [entry for order in program.orders() for entry in order if isinstance(entry, Overlapped)]

    assert len(pairs) == 5 + 6 + 7 + 7  # 2(m - 2p + d + 1) + p - d - 1 on device d, one less on the last
    assert all(pair.backward.kind is Kind.BACKWARD for pair in pairs)
    assert all(pair.forward.micro_batch > pair.backward.micro_batch for pair in pairs)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("dualpipe", (3, 8), "two directions need even numbers, but there are 3 devices and 8 micro-batches"),
        ("dualpipe", (2, 5), "two directions need even numbers, but there are 2 devices and 5 micro-batches"),
        ("dualpipe", (4, 6), "its middle part needs at least 2 x 4 micro-batches, but there are 6"),
        ("dualpipev", (3, 5), "its middle part needs at least 2 x 3 micro-batches, but there are 5"),
    ],
)
def test_shapes_that_it_cannot_serve_are_refused_with_the_reason(name: str, shape: tuple[int, int], reason: str) -> None:
    with pytest.raises(RefusedError, match=rf"^{name} does not take this shape: {reason}$"):
        build_program(name, num_devices=shape[0], num_micro_batches=shape[1])


@pytest.mark.parametrize("name", ["dualpipe", "dualpipev"])
def test_other_than_two_stages_a_device_are_refused(name: str) -> None:
    with pytest.raises(RefusedError, match="but stages_per_device is 1: leave it out"):
        build_program(name, num_devices=2, num_micro_batches=4, stages_per_device=1)
