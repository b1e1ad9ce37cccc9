"""Tasks and hand-overs that take any time change nothing on threads: same losses and gradients, and it always ends.

tests/distributed/test_random_sleeps.py has the same in processes.
"""

import random
from time import sleep
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.stage.stage import StageRuntime
from executor.trainer.trainer import Trainer
from executor.workers.ports import Slot
from schedir.schedules.registry import build_program
from tests.distributed.test_random_sleeps import SEEDS, gradients, schedule_of
from tests.executor.small.models import batches, mlp, sgd

LONGEST_S = 0.004
TASKS = ("forward", "backward", "input_grad", "weight_grad", "recompute", "update", "predict")
DRAWN = [pytest.param(seed, num_devices, marks=() if seed < 2 else pytest.mark.slow) for seed in SEEDS for num_devices in (2, 3, 4)]


def with_sleeps(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Let tasks of stages sleep at random, and what is handed over arrive later."""
    drawn = random.Random(seed)

    def sleepy(method: Any) -> Any:
        def slept(*values: Any) -> Any:
            if drawn.random() < 0.3:
                sleep(drawn.uniform(0, LONGEST_S))
            return method(*values)

        return slept

    for owner, names in ((StageRuntime, TASKS), (Slot, ("put", "take"))):
        for name in names:
            patch.setattr(owner, name, sleepy(getattr(owner, name)))


@pytest.mark.parametrize(("seed", "num_devices"), DRAWN)
def test_losses_and_gradients_of_a_graph_do_not_depend_on_who_sleeps(
    monkeypatch: pytest.MonkeyPatch, *, seed: int, num_devices: int
) -> None:
    losses, expected = gradients(seed, num_devices, "threads")
    with_sleeps(seed, monkeypatch)
    found_losses, found = gradients(seed, num_devices, "threads")

    assert found_losses == losses
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in found)


@pytest.mark.parametrize(("seed", "num_devices"), DRAWN)
def test_losses_and_weights_of_a_trainer_do_not_depend_on_who_sleeps(
    monkeypatch: pytest.MonkeyPatch, *, seed: int, num_devices: int
) -> None:
    plain = trained(seed, num_devices)
    with_sleeps(seed, monkeypatch)
    losses, weights = trained(seed, num_devices)

    assert losses == plain[0]
    assert all(torch.equal(weights[key], plain[1][key]) for key in plain[1])


def trained(seed: int, num_devices: int) -> tuple[list[float], dict[str, Tensor]]:
    """Train some steps by the schedule that a seed draws, and drain."""
    name, devices, micro_batches = schedule_of(seed, num_devices)
    num_stages = build_program(name, num_devices=devices, num_micro_batches=micro_batches).num_stages
    with Trainer(
        mlp(num_stages, seed=seed),
        schedule=name,
        num_devices=devices,
        num_micro_batches=micro_batches,
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        timeout=60.0,
    ) as trainer:
        steps = [trainer.step(*pair) for pair in batches(4, samples=12, seed=seed)]
        losses = [step.loss for step in steps]
        trainer.drain()
        return losses, trainer.state_dict()
