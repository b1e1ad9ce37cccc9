"""PipeDream-2BW: order, versions, refusal."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import RefusedError
from schedir.ir.facts import facts
from schedir.ir.weights import Rule
from schedir.schedules import pipedream_2bw
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of

GRID = """\
device 0 | F0 F1 .  B0 F2 B1*F3 B2 F4 B3*F5 B4 F6 B5*F7 B6 .  B7*
device 1 | .  F0 B0 F1 B1*F2 B2 F3 B3*F4 B4 F5 B5*F6 B6 F7 B7*.""".splitlines()


def test_the_grid_is_that_of_the_docstring() -> None:
    assert grid_of("pipedream-2bw", 2, 2, num_mini_batches=4) == GRID == drawn(pipedream_2bw.__doc__)


def test_it_is_the_order_of_pipedream_with_a_rule_of_its_own() -> None:
    shape = {"num_devices": 3, "num_micro_batches": 4, "num_mini_batches": 5}
    program = build_program("pipedream-2bw", **shape)

    assert program.weights.rule is Rule.DOUBLE_BUFFER
    assert program.orders() == build_program("pipedream", **shape).orders()


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_two_versions_are_enough_and_both_directions_read_the_same(devices: int) -> None:
    """The paper, section 3.1: at most two versions at any time, W(t+1) = W(t) - lr * grad f(W(t-1)): a delay of one update."""
    found = facts(compile_program(build_program("pipedream-2bw", num_devices=devices, num_micro_batches=4)))

    assert set(found.weight_versions) == {2}
    assert set(found.staleness) == {1}
    assert found.consistent


def test_fewer_micro_batches_than_stages_are_refused_with_the_reason() -> None:
    with pytest.raises(
        RefusedError,
        match=r"version j // m - 1, which 3 micro-batches per update make too late for 4 stages: use at least 4 micro-batches$",
    ):
        build_program("pipedream-2bw", num_devices=4, num_micro_batches=3)
