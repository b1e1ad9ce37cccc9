"""ZB-H1, ZB-H2 and the zero-bubble loop: grids, stored orders, the paper's bubble rates. D18 is a known problem."""

import pytest

from schedir.costs.uniform import UniformCosts
from schedir.schedules import zero_bubble
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of
from tests.schedules.stored import makespans, papers_rows, stored_orders, timed

H1 = """\
device 0 | F0 F1 F2 .  .  I0 W0 F3 I1 W1 I2 W2 I3 W3*
device 1 | .  F0 F1 .  I0 F2 I1 W0 F3 I2 W1 I3 W2 W3*
device 2 | .  .  F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3*""".splitlines()

H2 = """\
device 0 | F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5*.  .
device 1 | .  F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5*.
device 2 | .  .  F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5*""".splitlines()

LOOP = """\
device 0 | 0F0 0F1 2F0 2F1 .   2I0 2W0 2I1 2W1*0I0 0W0 0I1 0W1*
device 1 | .   1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1*1I1 1W0 1W1*""".splitlines()


def test_the_grids_are_those_of_the_docstring() -> None:
    assert grid_of("zb-h1", 3, 4) == H1
    assert grid_of("zb-h2", 3, 6) == H2
    assert grid_of("interleaved-zb", 2, 2) == LOOP
    assert drawn(zero_bubble.__doc__) == H1 + H2 + LOOP


@pytest.mark.parametrize(
    ("name", "stored"),
    [("zb-h1", "ZB-H1"), ("zb-h1", "ZB-H1 (zb1p)"), ("zb-h1", "ZB heuristic, max_mem=p (ZB-H1 memory)")],
)
def test_zb_h1_is_what_public_programs_emit(name: str, stored: str) -> None:
    program = build_program(name, num_devices=4, num_micro_batches=8)

    assert all(program.orders() == orders for orders in stored_orders(stored))


def test_the_loop_is_what_torch_emits() -> None:
    program = build_program("interleaved-zb", num_devices=4, num_micro_batches=8)

    assert stored_orders("interleaved zero bubble") == [program.orders()]


@pytest.mark.parametrize(
    ("name", "stored"), [("zb-h1", "ZB-H1"), ("zb-h2", "ZB-H2"), ("interleaved-zb", "interleaved zero bubble")]
)
def test_makespans_are_the_stored_ones(name: str, stored: str) -> None:
    for transfer, makespan in makespans(stored):
        assert timed(name, 4, 8, costs=UniformCosts(transfer=transfer)).makespan == pytest.approx(makespan)


# D18: idle (p - 1)(F + I - W) where m >= p, I the input gradient alone; below, the formula does not hold.
@pytest.mark.parametrize(("devices", "micro_batches", "makespan"), [(4, 8, 27), (4, 4, 15), (8, 20, 67), (4, 2, 11)])
def test_makespans_of_zb_h1_with_equal_parts(devices: int, micro_batches: int, makespan: float) -> None:
    assert timed("zb-h1", devices, micro_batches).makespan == makespan


def test_zb_h1_with_a_long_input_gradient() -> None:
    """D18: F = 1, I = 1.5, W = 0.5: 24 + 3 (1 + 1.5 - 0.5)."""
    assert timed("zb-h1", 4, 8, costs=UniformCosts(input_grad=1.5, weight_grad=0.5)).makespan == 30


@pytest.mark.parametrize("row", papers_rows(), ids=lambda row: f"m{row['num_micro_batches']}")
def test_bubble_rates_are_those_of_the_papers_table(row: dict[str, str]) -> None:
    """Bubble rate = (makespan - m(F + I + W)) / makespan; 1F1B keeps I and W together."""
    forward, input_grad, weight_grad, transfer = (
        float(row[f"{name}_ms"]) for name in ("forward", "input_grad", "weight_grad", "transfer")
    )
    costs = UniformCosts(forward=forward, input_grad=input_grad, weight_grad=weight_grad, transfer=transfer)
    devices, m = int(row["num_devices"]), int(row["num_micro_batches"])
    work = m * (forward + input_grad + weight_grad)

    for name, rate in (("1f1b", row["bubble_1f1b"]), ("zb-h1", row["bubble_zb_h1"])):
        makespan = timed(name, devices, m, costs=costs).makespan
        assert (makespan - work) / makespan == pytest.approx(float(rate), abs=5e-5)


@pytest.mark.parametrize(("devices", "micro_batches"), [(1, 3), (2, 5), (4, 8), (4, 12), (6, 16)])
def test_activations_alive_are_p_and_2p_minus_1(devices: int, micro_batches: int) -> None:
    assert set(timed("zb-h1", devices, micro_batches).live) == {devices}
    assert set(timed("zb-h2", devices, micro_batches).live) == {min(micro_batches, 2 * devices - 1)}


def test_a_devices_span_has_the_papers_bubble() -> None:
    """p = 4, m = 8, F = I = W = 1: (p - 1)(F + I - W) = 3 for H1, (p - 1)(F + I - 2W) = 0 for H2."""
    assert set(timed("zb-h1", 4, 8).spans) == {27, 26, 25, 24}
    assert set(timed("zb-h2", 4, 8).spans) == {24}


def test_one_stage_a_device_makes_the_loop_zb_h1() -> None:
    shape = {"num_devices": 4, "num_micro_batches": 6}

    assert build_program("interleaved-zb", **shape, stages_per_device=1).orders() == build_program("zb-h1", **shape).orders()
