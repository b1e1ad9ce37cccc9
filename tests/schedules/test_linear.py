"""Generation is linear in the actions: counted in calls of functions, Python's and C's, so that no clock is needed.

A schedule made by array operations takes the same calls whatever its size; one that is simulated takes some for each action.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from schedir.costs.uniform import UniformCosts
from schedir.ir.program import Program
from schedir.schedules.registry import SCHEDULES, build_program

SLACK = 1.3
"""What the heaps of more devices, and what is done once for all, may add to the calls of an action."""


def calls_of(work: Callable[[], Program]) -> tuple[int, Program]:
    """Return how many functions are called, and what they make."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        program = work()
    finally:
        sys.setprofile(None)
    return count, program


def calls_an_action(name: str, devices: int, micro_batches: int, **options: Any) -> float:
    build_program(name, num_devices=devices, num_micro_batches=micro_batches, **options)  # what is cached is cached now
    calls, program = calls_of(lambda: build_program(name, num_devices=devices, num_micro_batches=micro_batches, **options))
    return calls / program.num_entries


@pytest.mark.parametrize("name", [name for name, schedule in SCHEDULES.items() if not schedule.continuous])
def test_no_action_takes_more_calls_in_a_larger_pipeline(name: str) -> None:
    few, many = calls_an_action(name, 4, 32), calls_an_action(name, 16, 128)

    assert many <= SLACK * few
    assert many < 24  # a list scheduler, twice or with W filled in


@pytest.mark.parametrize("name", ["zb-h2", "zb-v", "v-half"])
def test_following_costs_takes_no_more_calls_an_action_in_a_larger_pipeline(name: str) -> None:
    """Twelve candidates a block on at most 3p micro-batches, two of them in full."""
    costs = UniformCosts(forward=1.1, input_grad=0.9, weight_grad=0.7, transfer=0.1)

    assert calls_an_action(name, 8, 32, costs=costs) <= SLACK * calls_an_action(name, 4, 16, costs=costs)
