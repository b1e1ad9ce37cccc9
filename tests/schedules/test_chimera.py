"""Chimera: grid, formula, both directions, refusals."""

import pytest

from schedir.costs.uniform import UniformCosts
from schedir.errors import RefusedError
from schedir.schedules import chimera
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of
from tests.schedules.stored import timed

GRID = """\
device 0 | 0F0 0F1 .   3F2 3B2 3F3 3B3 0B0 .   0B1*
device 1 | .   1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1*.
device 2 | .   1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3*.
device 3 | 0F2 0F3 .   3F0 3B0 3F1 3B1 0B2 .   0B3*""".splitlines()


def test_the_grid_is_that_of_the_docstring() -> None:
    assert grid_of("chimera", 4, 4) == GRID == drawn(chimera.__doc__)


# Section 3.1 of the paper: p - 2 slots of idle time for F = B, so 2m + p - 2 slots in all, if there are enough micro-batches.
@pytest.mark.parametrize(("devices", "micro_batches"), [(2, 2), (2, 10), (4, 4), (4, 6), (4, 16), (6, 12), (8, 8), (10, 20)])
def test_the_makespan_for_equal_forwards_and_backwards_is_the_papers(devices: int, micro_batches: int) -> None:
    found = timed("chimera", devices, micro_batches, costs=UniformCosts(backward=1.0))

    assert found.makespan == 2 * micro_batches + devices - 2
    assert sum(found.idle) / (devices * found.makespan) == pytest.approx((devices - 2) / (2 * micro_batches + devices - 2))


def test_longer_backwards_take_16_at_best() -> None:
    """p = m = 4, F = 1, B = 2."""
    assert timed("chimera", 4, 4).makespan == 16


@pytest.mark.parametrize(("devices", "micro_batches"), [(2, 6), (4, 4), (4, 16), (8, 16), (8, 40)])
def test_at_most_p_activations_live_on_a_device(devices: int, micro_batches: int) -> None:
    assert max(timed("chimera", devices, micro_batches).live) <= devices


@pytest.mark.slow
@pytest.mark.parametrize("devices", range(2, 25, 2))
def test_p_activations_are_enough_for_every_number_of_micro_batches(devices: int) -> None:
    for micro_batches in range(2, 3 * devices + 3, 2):
        build_program("chimera", num_devices=devices, num_micro_batches=micro_batches)


def test_half_of_the_micro_batches_go_each_way() -> None:
    graph = timed("chimera", 4, 4).graph
    down = {task.stage: task.device for task in graph.tasks() if task.kind == 0 and task.micro_batch in (0, 1)}
    up = {task.stage: task.device for task in graph.tasks() if task.kind == 0 and task.micro_batch in (2, 3)}

    assert down == {0: 0, 1: 1, 2: 2, 3: 3}
    assert up == {0: 3, 1: 2, 2: 1, 3: 0}


@pytest.mark.parametrize(("devices", "micro_batches"), [(3, 4), (4, 3), (1, 2)])
def test_odd_numbers_are_refused(devices: int, micro_batches: int) -> None:
    with pytest.raises(RefusedError, match=f"even numbers, but there are {devices} devices and {micro_batches} micro-batches$"):
        build_program("chimera", num_devices=devices, num_micro_batches=micro_batches)


def test_other_than_two_stages_a_device_are_refused() -> None:
    with pytest.raises(RefusedError, match="a stage of each direction, but stages_per_device is 1: leave it out"):
        build_program("chimera", num_devices=2, num_micro_batches=2, stages_per_device=1)
