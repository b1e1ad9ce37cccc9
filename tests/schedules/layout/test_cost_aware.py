"""Orders by costs: never longer than the fixed order, never above the limit, refusals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.costs.model import CostModel
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.costs.work import WorkTime
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.facts import facts
from schedir.ir.order.in_order import evaluate
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from tests.strategies import uniform_costs

STAGES = {"zb-h2": 1, "zb-v": 2, "v-half": 2}
"""Stages per device of the schedules that follow costs."""


def usual_limit(name: str, devices: int) -> int:
    return {"zb-h2": 2 * devices - 1, "zb-v": 2 * devices, "v-half": 2 * ((devices + 2) // 2)}[name]


def length(program: Program, costs: CostModel) -> float:
    graph = compile_program(program)
    return float(evaluate(graph, costs.times(graph)).end.max())


def live(program: Program) -> int:
    return max(facts(compile_program(program)).peak_live_activations)


@given(name=st.sampled_from(sorted(STAGES)), data=st.data())
def test_whatever_the_costs_it_keeps_the_limit_and_is_no_longer_than_the_fixed_order(name: str, data: st.DataObject) -> None:
    devices, m, n = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 10)), data.draw(st.integers(1, 2))
    shape: dict[str, Any] = {"num_devices": devices, "num_micro_batches": m, "num_mini_batches": n}
    usual = usual_limit(name, devices)
    least = STAGES[name]
    limit = data.draw(st.none() | st.integers(least, usual + 3))
    costs = data.draw(uniform_costs(devices * least))

    fixed = build_program(name, **shape)
    found = build_program(name, **shape, costs=costs, activation_limit=limit)

    assert live(fixed) <= usual
    assert live(found) <= (usual if limit is None else limit)
    if limit is None or live(fixed) <= limit:
        assert length(found, costs) <= length(fixed, costs)


@given(data=st.data())
def test_the_fixed_order_of_zb_h1_keeps_its_limit(data: st.DataObject) -> None:
    """Whatever the costs: what lives on a device follows from its order alone."""
    devices = data.draw(st.integers(1, 8))
    program = build_program("zb-h1", num_devices=devices, num_micro_batches=data.draw(st.integers(1, 20)))

    assert live(program) <= devices


# A stage three times as slow as the others, on the first, a middle and the last device.
@pytest.mark.parametrize("slow", [0, 2, 3])
@pytest.mark.parametrize("name", sorted(STAGES))
def test_it_gains_where_one_device_is_slow(name: str, slow: int) -> None:
    stages = 4 * STAGES[name]
    seconds = [3.0 if stage in (slow, stages - 1 - slow) else 1.0 for stage in range(stages)]
    costs = UniformCosts(forward=seconds, input_grad=seconds, weight_grad=seconds, transfer=0.2)
    fixed = build_program(name, num_devices=4, num_micro_batches=8)
    found = build_program(name, num_devices=4, num_micro_batches=8, costs=costs)

    assert length(found, costs) <= length(fixed, costs)
    assert found.name == fixed.name


def test_more_memory_never_makes_it_longer_than_the_fixed_order_and_less_is_kept() -> None:
    """p = 4, m = 8, F = I = W = 1: 48 slots of work and at least 3 before the last device begins; 24 in sequence take 144."""
    costs = UniformCosts()
    lengths = {}
    for limit in (2, 4, 6, 8):
        program = build_program("zb-v", num_devices=4, num_micro_batches=8, costs=costs, activation_limit=limit)
        assert live(program) <= limit
        lengths[limit] = length(program, costs)

    assert lengths[8] == 51
    assert lengths[8] < lengths[6] < lengths[4] < lengths[2]


def test_the_fixed_order_is_kept_where_all_others_are_longer() -> None:
    """ZB-H2 under long transfers and short forwards, p = 5, m = 10: the best of the others takes 40.67, the fixed one 39.33."""
    costs = UniformCosts(forward=1 / 3, input_grad=1.0, weight_grad=1.0, transfer=1.5)
    shape: dict[str, Any] = {"num_devices": 5, "num_micro_batches": 10}

    assert build_program("zb-h2", **shape, costs=costs) == build_program("zb-h2", **shape)


def test_costs_from_a_table_are_followed_too() -> None:
    """With a slow first micro-batch and a dispatch gap."""
    piece = PieceCosts(forward=WorkTime(1.0, 3.0), input_grad=WorkTime(1.5), weight_grad=WorkTime(0.5))
    costs = TableCosts(rows=(piece,) * 8, transfer=0.3, dispatch_gap_s=0.1)
    fixed = build_program("v-half", num_devices=4, num_micro_batches=8)
    found = build_program("v-half", num_devices=4, num_micro_batches=8, costs=costs)

    assert length(found, costs) < length(fixed, costs)


def test_the_same_arguments_give_the_same_program() -> None:
    costs = UniformCosts(forward=[1.0, 0.7, 1.3, 1.1] * 2, transfer=0.1)
    first, second = (build_program("v-half", num_devices=4, num_micro_batches=9, costs=costs) for _ in range(2))

    assert first == second


@pytest.mark.parametrize(("name", "least"), [("zb-h2", 1), ("zb-v", 2), ("v-half", 2)])
def test_a_limit_below_the_stages_of_a_device_is_refused(name: str, least: int) -> None:
    shape: dict[str, Any] = {"num_devices": 2, "num_micro_batches": 3, "costs": UniformCosts()}

    assert live(build_program(name, **shape, activation_limit=least)) == least
    if least > 1:
        with pytest.raises(RefusedError, match=rf"^{name} holds at least 2 .* but activation_limit is 1: give at least 2$"):
            build_program(name, **shape, activation_limit=1)


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "4"])
def test_a_limit_that_is_no_count_is_refused(limit: object) -> None:
    with pytest.raises(ArgumentError, match=rf"^activation_limit {limit!r} must be an integer of at least 1$"):
        build_program("zb-v", num_devices=2, num_micro_batches=2, costs=UniformCosts(), activation_limit=limit)


@pytest.mark.parametrize("name", sorted(STAGES))
def test_a_limit_needs_costs(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"^activation_limit 6 chooses an order by costs: give costs too, or leave it out$"):
        build_program(name, num_devices=2, num_micro_batches=2, activation_limit=6)


def test_costs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentError, match="zb-v splits backward: give --input-grad and --weight-grad instead of --backward 2"):
        build_program("zb-v", num_devices=2, num_micro_batches=2, costs=UniformCosts(backward=2.0))


def test_what_is_no_cost_model_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"^costs 'costs\.toml' is of type str, not CostModel: give UniformCosts, TableCosts or"
    ):
        build_program("zb-v", num_devices=2, num_micro_batches=2, costs="costs.toml")
