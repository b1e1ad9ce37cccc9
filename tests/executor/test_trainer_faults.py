"""Interrupts, stuck stages and losses that are no numbers: trainings end, or go on, within bounds."""

import _thread
import math
import threading
from time import monotonic

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from schedir.errors import RunError
from tests.executor.models import WIDTH, batches, mlp, sgd
from tests.executor.trainers import alive, train_step_by_step, trainer

BOUND_S = 30.0
"""Far more than any of these may take, and far less than the timeout that would end a hang."""


class Held(nn.Module):
    """Computes nothing until it may; the first call tells so."""

    def __init__(self) -> None:
        super().__init__()
        self.may, self.called = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.called.set()
        self.may.wait(600)
        return x * 1.0


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_an_interrupt_ends_a_training_while_a_stage_computes(schedule: str) -> None:
    held = Held()
    made = Trainer([*mlp(1), held], schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)
    threading.Thread(target=lambda: held.called.wait(60) and _thread.interrupt_main(), daemon=True).start()
    began = monotonic()
    with pytest.raises(KeyboardInterrupt):
        train_step_by_step(made, batches(3))
    assert monotonic() - began < BOUND_S
    with pytest.raises(RunError, match="this training has ended"):
        made.step(*batches(1)[0])
    held.may.set()
    for thread in alive():
        thread.join(BOUND_S)
    assert alive() == []


def test_a_stage_that_never_ends_is_an_error_within_the_timeout() -> None:
    held = Held()
    made = Trainer([*mlp(1), held], schedule="1f1b", num_micro_batches=1, loss=nn.functional.mse_loss, optimizer=sgd, timeout=0.5)
    with pytest.raises(RunError, match=r"raise timeout if a task may take that long"):
        train_step_by_step(made, batches(1))
    held.may.set()
    for thread in alive():
        thread.join(BOUND_S)


def test_a_caller_may_take_longer_than_the_timeout_between_two_steps() -> None:
    """Devices without work are not stuck: the caller's own pause is nobody's wait."""
    with trainer(2, "pipedream", 2, timeout=0.4) as made:
        made.step(*batches(1)[0])
        threading.Event().wait(2.5)
        assert made.step(*batches(1)[0]).loss > 0


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_a_loss_that_is_no_number_is_reported_and_training_goes_on(schedule: str) -> None:
    data = [(torch.full((4, WIDTH), math.nan, dtype=torch.float64), batches(1, samples=4)[0][1]), *batches(1)]
    losses, _ = train_step_by_step(trainer(2, schedule, 2), [data[1], data[0], data[1]])
    assert math.isfinite(losses[0])
    assert math.isnan(losses[1])
