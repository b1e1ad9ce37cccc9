"""What is no loss scale, or no rule for one, is refused by its name and value."""

import math
from typing import Any

import pytest

from executor.trainer.updating.loss_scaling import LossScale, LossScaling
from schedir.errors import ArgumentError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("static", "loss_scaling 'static' is unknown: use dynamic, a number or a LossScaling"),
        (0, "loss_scaling: scale 0.0 is no finite number above 0: give one, say 1024"),
        (math.inf, "loss_scaling: scale inf is no finite number above 0"),
        (math.nan, "loss_scaling: scale nan is no finite number above 0"),
        (1e-320, "loss_scaling: scale 1e-320 is too small to divide by: give a larger one, say 1024"),
        (1e-39, "loss_scaling: scale 1e-39 is too small to divide by"),  # 1 / 1e-39 is above 3.4e38, the largest float32
        (True, "loss_scaling True is of type bool"),
        ([1], r"loss_scaling \[1\] is of type list"),
    ],
)
def test_a_scale_that_is_none_is_named(given: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LossScaling.of(given)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"growth_factor": 1.0}, "loss_scaling: growth_factor 1.0 lets no scale grow: give a number above 1"),
        ({"backoff_factor": 1.0}, "loss_scaling: backoff_factor 1.0 lets no scale fall: give one between 0 and 1"),
        ({"backoff_factor": 0.0}, "loss_scaling: backoff_factor 0.0 lets no scale fall"),
        ({"growth_interval": -1}, "loss_scaling: growth_interval -1 is below 0: give 0 for a fixed scale"),
        ({"growth_interval": 2.5}, "loss_scaling: growth_interval 2.5 is of type float"),
    ],
)
def test_rules_that_move_no_scale_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LossScaling(**arguments)


def test_gradients_are_multiplied_with_the_nearest_number_of_single_precision() -> None:
    """torch's scaler keeps 1 / scale as a float32: 1/3 is 11184811 / 2^25 there."""
    assert LossScale(LossScaling(scale=3.0)).inverse == 11184811 / 2**25
    assert LossScale(LossScaling(scale=0.1)).inverse == 10.0


def test_a_number_is_a_scale_that_never_changes() -> None:
    scale = LossScale(LossScaling.of(1024.0) or LossScaling())
    for made in (False, True, True, False):
        scale.note(made=made)

    assert scale.value == 1024.0


def test_a_scale_grows_behind_so_many_updates_in_a_row_and_falls_behind_one_that_was_left_out() -> None:
    """Interval 2, factors 2 and 1/2: the update that is left out counts the others anew."""
    scale = LossScale(LossScaling(scale=8.0, growth_interval=2))
    found = []
    for made in (True, True, True, False, True, True):
        scale.note(made=made)
        found.append(scale.value)

    assert found == [8.0, 16.0, 16.0, 8.0, 8.0, 16.0]


def test_a_scale_may_grow_behind_every_update() -> None:
    scale = LossScale(LossScaling(scale=8.0, growth_interval=1))
    scale.note(made=True)
    scale.note(made=True)

    assert scale.value == 32.0
