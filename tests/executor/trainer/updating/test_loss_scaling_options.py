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
