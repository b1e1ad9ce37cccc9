"""Counts of changes are those of the moment when a step was given, however late its losses are told and heard."""

import pytest

from executor.workers.distributed.exchange.edits import Edits, check_alike
from schedir.errors import ArgumentError


def test_a_step_has_the_counts_of_when_it_was_given() -> None:
    edits = Edits(2)
    edits.add((1, 0))
    edits.begin_step(0, oldest=-2)
    edits.add((0, 3))
    edits.begin_step(1, oldest=-1)
    edits.add((5, 5))
    assert [edits.of_step(0), edits.of_step(1), edits.counts] == [(1, 0), (1, 3), (6, 8)]


def test_counts_of_steps_whose_losses_are_heard_are_let_go() -> None:
    edits = Edits(1)
    edits.add((2,))
    for step in range(5):
        edits.begin_step(step, oldest=step - 1)
    assert [edits.of_step(step) for step in range(5)] == [(0,), (0,), (0,), (2,), (2,)]


def test_steps_that_are_counted_anew_have_counts_of_their_own() -> None:
    edits = Edits(1)
    for step in range(2):
        edits.begin_step(step, oldest=step - 3)
    edits.add((2,))
    edits.begin_step(0, oldest=-3)
    assert [edits.of_step(0), edits.of_step(1)] == [(2,), (0,)]


def test_who_has_changed_what_is_said() -> None:
    check_alike((1, 2), (1, 2), number=0, other=1)
    message = (
        "^parameters, buffers or modes of stage 1 were changed between steps 0 times by process 0 and 3 times by process 2: make"
    )
    with pytest.raises(ArgumentError, match=message):
        check_alike((1, 0), (1, 3), number=0, other=2)
