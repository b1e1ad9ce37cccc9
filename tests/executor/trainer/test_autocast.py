"""Autocast belongs to a thread: what stands around the first step holds in the devices' threads, for all steps."""

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from schedir.errors import RefusedError
from tests.executor.small.models import WIDTH, sgd

SCHEDULES = pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])


class Looks(nn.Module):
    """Notes of what type its layer's output is."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(WIDTH, WIDTH), set[torch.dtype]()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        self.seen.add(y.dtype)
        return y.float()


def bfloat16() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def made(stages: list[Looks], schedule: str) -> Trainer:
    return Trainer(stages, schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)


def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(4, WIDTH), torch.randn(4, WIDTH)


@SCHEDULES
def test_d13_autocast_around_the_steps_holds_in_the_stages(schedule: str) -> None:
    stages = [Looks(), Looks()]
    with made(stages, schedule) as training:
        for _ in range(3):
            with bfloat16():
                training.step(*pair())
        training.drain()
        training.evaluate([pair()])
    assert [stage.seen for stage in stages] == [{torch.bfloat16}] * 2


@SCHEDULES
def test_autocast_where_the_trainer_is_made_is_none_of_the_steps(schedule: str) -> None:
    stages = [Looks(), Looks()]
    with bfloat16():
        training = made(stages, schedule)
    with training:
        for _ in range(3):
            training.step(*pair())
    assert [stage.seen for stage in stages] == [{torch.float32}] * 2


@SCHEDULES
def test_a_step_under_another_autocast_is_refused_and_training_goes_on(schedule: str) -> None:
    with made([Looks(), Looks()], schedule) as training:
        training.step(*pair())
        message = (
            r"^this step would be computed under autocast to bfloat16, but the training began without autocast: call all steps"
        )
        with bfloat16(), pytest.raises(RefusedError, match=message):
            training.step(*pair())
        training.step(*pair())
        training.drain()
    assert training.mini_batch == 2
