"""A process that is killed or stopped ends all others, which name it. One launch each, since a killed process trains no more."""

import signal
from collections.abc import Callable

import pytest

from executor.workers.distributed.meeting.launch import outcomes_of
from schedir.errors import RunError
from schedir.ir.action import Kind
from tests.distributed.programs import faults
from tests.distributed.programs.work import LAUNCH_S

TIMEOUT_S = 20.0
"""A process that is silent for half of it is lost."""


def texts_of_the_others(fault: str, stage: int, *, training: Callable[..., None] = faults.raised_with) -> list[str]:
    """Let a fault happen in the process of a stage; return what the others raise."""
    task = Kind.BACKWARD, stage, 1
    outcomes = outcomes_of(training, task, getattr(faults, fault), 3, TIMEOUT_S, num_processes=3, timeout_s=LAUNCH_S)
    assert outcomes[stage].exit_code == -signal.SIGKILL
    others = [outcome for outcome in outcomes if outcome.number != stage]
    assert [outcome.exit_code for outcome in others] == [1, 1]
    assert all(isinstance(outcome.error, RunError) for outcome in others)
    return [str(outcome.error) for outcome in others]


@pytest.mark.parametrize("stage", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_killed_process_is_named_by_all_others(stage: int) -> None:
    for text in texts_of_the_others("kill", stage):
        assert text.startswith(f"process {stage} (host ")
        assert f", device {stage}) is gone" in text


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 0])
def test_a_process_that_is_killed_in_a_step_of_a_trainer_is_named_by_all_others(stage: int) -> None:
    for text in texts_of_the_others("kill", stage, training=faults.raised_in_steps_with):
        assert text.startswith(f"process {stage} (host ")
        assert f", device {stage}) is gone" in text


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 0])
def test_a_stopped_process_is_named_by_all_others(stage: int) -> None:
    for text in texts_of_the_others("stop", stage):
        assert text.startswith(f"process {stage} (host ")
        assert "has not answered for 10 s: it is stopped, or its host is gone" in text
