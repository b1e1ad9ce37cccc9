"""Rounds in which actions run."""

import numpy as np
import pytest

from schedir.errors import DeadlockError
from schedir.interop.rounds import rounds_of
from schedir.ir.checks.verify import check_program
from tests.programs import written


def test_devices_go_in_their_order_within_a_round() -> None:
    """0F0 in round 0, and device 1 behind it in the same; its 1B0 in round 1 reaches device 0 in round 2."""
    table = check_program(written("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", m=2))

    assert rounds_of(table).tolist() == [0, 1, 2, 4, 0, 1, 2, 3]


def test_other_steps_take_rounds_of_their_own() -> None:
    table = check_program(written("0F0 0B0", "1F0 1B0", m=1))

    assert rounds_of(table, np.array([2, 0, 0, 0])).tolist() == [2, 4, 2, 3]


def test_actions_that_wait_for_each_other_are_named() -> None:
    table = check_program(written("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", m=2))

    with pytest.raises(
        DeadlockError, match=r"^deadlock: device 0: 0B0 waits for 1B0; device 1: 1F1 waits for 0F1: none of them can"
    ):
        rounds_of(table)
