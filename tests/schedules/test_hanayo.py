"""Hanayo: grid, waves, stored makespans, refusals."""

from typing import Any

import pytest

from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from schedir.schedules import hanayo
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of, text_of
from tests.schedules.stored import makespans, timed

GRID = """\
device 0 | 0F0 0F1 0F2 .   .   5F0 5I0 5W0 5F1 5I1 5W1 5F2 5I2 5W2*0I0 0W0 .   0I1 0W1 .   0I2 0W2*
device 1 | .   1F0 1F1 1F2 4F0 .   4F1 4I0 4W0 4F2 4I1 4W1 1I0 1W0 4I2 4W2*1I1 1W1 .   1I2 1W2*.
device 2 | .   .   2F0 3F0 2F1 3F1 2F2 3F2 3I0 3W0 2I0 2W0 3I1 3W1 2I1 2W1 3I2 3W2*2I2 2W2*.   .""".splitlines()


def test_the_grid_is_that_of_the_docstring() -> None:
    assert grid_of("hanayo", 3, 3) == GRID == drawn(hanayo.__doc__)


def test_makespans_are_at_most_the_stored_ones_in_less_memory() -> None:
    """The public program that emits 54 and 55.8 holds 13, 14, 15 and 16 activations."""
    for transfer, makespan in makespans("Hanayo wave (2 chunks/device)"):
        assert timed("hanayo", 4, 8, costs=UniformCosts(transfer=transfer)).makespan <= makespan + 1e-9
    assert timed("hanayo", 4, 8).live == (8, 8, 8, 8)


@pytest.mark.parametrize(
    ("waves", "stages"),
    [(1, ((0,), (1,), (1,), (0,))), (2, ((0,), (1,), (1,), (0,), (0,), (1,), (1,), (0,)))],
)
def test_a_wave_goes_down_and_up_again(waves: int, stages: tuple[tuple[int, ...], ...]) -> None:
    assert timed("hanayo", 2, 3, waves=waves).graph.stage_devices() == stages


def test_stages_per_device_say_how_many_waves_there_are() -> None:
    shape = {"num_devices": 2, "num_micro_batches": 3}

    assert build_program("hanayo", **shape, stages_per_device=4) == build_program("hanayo", **shape, waves=2)
    assert build_program("hanayo", **shape) == build_program("hanayo", **shape, waves=1)


def test_a_weight_gradient_stands_behind_its_input_gradient_unless_backwards_are_whole() -> None:
    split = text_of("hanayo", 2, 4)
    whole = build_program("hanayo", num_devices=2, num_micro_batches=4, split_backward=False)

    assert all(f"{stage}I{j} {stage}W{j}" in split[device] for device, stage in ((0, 0), (0, 3), (1, 1), (1, 2)) for j in range(4))
    assert set(whole.kind.tolist()) == {Kind.FORWARD, Kind.BACKWARD}


@pytest.mark.parametrize(("devices", "micro_batches", "waves"), [(1, 3, 1), (2, 9, 1), (4, 8, 2), (5, 3, 1), (8, 16, 1)])
def test_at_most_as_many_activations_live_as_there_are_stages(devices: int, micro_batches: int, waves: int) -> None:
    assert max(timed("hanayo", devices, micro_batches, waves=waves).live) <= 2 * devices * waves


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"waves": 2, "stages_per_device": 2}, "waves 2 does not go with 2 stages per device: a wave passes a device twice"),
        ({"waves": 0}, "waves 0 must be an integer of at least 1"),
        ({"waves": 1.5}, "waves 1.5 must be an integer of at least 1"),
        ({"split_backward": 1}, "split_backward 1 is of type int, not bool: give True or False"),
    ],
)
def test_waves_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build_program("hanayo", num_devices=2, num_micro_batches=2, **options)


def test_an_odd_number_of_stages_a_device_is_refused() -> None:
    with pytest.raises(RefusedError, match="a wave passes every device twice, but stages_per_device is 3: use an even number"):
        build_program("hanayo", num_devices=2, num_micro_batches=2, stages_per_device=3)
