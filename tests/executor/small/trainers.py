"""Trainers of small models, and what their tests ask of them."""

import threading

import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from schedir.ir.program import Program
from tests.executor.small.models import mlp, sgd
from tests.left_threads import left_since

ENDED_S = 30.0
"""Within so much all threads of a training end; one that waits for another would do so for 60 s."""
Data = list[tuple[Tensor, Tensor]]


def trainer(num_stages: int, schedule: str | Program, num_micro_batches: int | None = None, **options: object) -> Trainer:
    given = {"loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": 60.0, "num_micro_batches": num_micro_batches}
    return Trainer(mlp(num_stages), schedule=schedule, **(given | options))  # type: ignore[arg-type]  # options of any type


def train_step_by_step(made: Trainer, data: Data) -> tuple[list[float], dict[str, Tensor]]:
    with made:
        steps = [made.step(*mini_batch) for mini_batch in data]
        losses = [step.loss for step in steps]
        made.drain()
        return losses, made.state_dict()


def assert_bit_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []


def alive() -> list[threading.Thread]:
    """Return the threads of trainings that do not end by themselves: of one that has failed they may come to it a little later."""
    others = [thread for thread in threading.enumerate() if thread.name != "trainer" and not thread.name.startswith("device ")]
    return left_since(others, bound_s=ENDED_S)
