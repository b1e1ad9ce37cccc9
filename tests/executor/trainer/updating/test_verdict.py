"""What is known of all gradients, put together from what each device knows."""

import math

from executor.trainer.updating.verdict import NOWHERE, StepVerdict


def test_the_squares_of_all_devices_are_added() -> None:
    """3 and 4 on two devices have the norm 5 (D7)."""
    assert StepVerdict.of_all([StepVerdict(9.0, NOWHERE), StepVerdict(16.0, NOWHERE)]) == StepVerdict(25.0, NOWHERE)


def test_the_first_stage_that_is_not_finite_is_named_whatever_the_others_say() -> None:
    """Also stage 0, and whether the others are finite or not."""
    finite = StepVerdict(1.0, NOWHERE)
    for stages, first in (((2,), 2), ((3, 1), 1), ((0,), 0)):
        broken = [StepVerdict(math.inf, stage) for stage in stages]
        for verdicts in ([finite, *broken], [*broken, finite]):
            found = StepVerdict.of_all(verdicts)
            assert (found.culprit, found.squares) == (first, math.inf)
