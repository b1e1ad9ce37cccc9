"""Tied weights in two processes: as in two threads, bit for bit. One launch."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from torch import Tensor

from executor.trainer.trainer import Trainer
from executor.workers.distributed.meeting.launch import launch
from tests.distributed.programs.work import LAUNCH_S, Found, same
from tests.executor.small.tied import adam, d8, gpt, loss, texts, train_tied

SETUPS = [("1f1b", 2, 3), ("interleaved-1f1b", 2, 2), ("zb-v", 2, 4), ("chimera", 2, 2)]


@dataclass
class Everything:
    """What one process knows."""

    d8: Found
    runs: list[Found]
    losses: list[float]
    """Of a trainer that clips over the model, saves, goes on, loads and goes on again."""
    weights: dict[str, Tensor]


def everything(workers: str, folder: str) -> Everything:
    runs = [Found.of(train_tied(*setup, workers=workers)) for setup in SETUPS]
    with Trainer(
        gpt(4),
        schedule="interleaved-1f1b",
        num_devices=2,
        stages_per_device=2,
        num_micro_batches=2,
        loss=loss,
        optimizer=adam,
        clip=0.5,
        workers=workers,
        timeout=60,
    ) as trainer:
        losses = [trainer.step(*pair).loss for pair in texts(2)]
        trainer.save(Path(folder))
        losses += [trainer.step(*pair).loss for pair in texts(4)[2:]]
        trainer.load(Path(folder))
        losses += [trainer.step(*pair).loss for pair in texts(4)[2:]]
        losses.append(trainer.evaluate(texts(1))["loss"])
        weights = trainer.state_dict()
    return Everything(Found.of(d8(workers=workers)[0]), runs, losses, weights)


@cache
def by_threads() -> Everything:
    with TemporaryDirectory() as folder:
        return everything("threads", folder)


@cache
def by_processes() -> list[Everything]:
    with TemporaryDirectory() as folder:
        return launch(everything, "distributed", folder, num_processes=2, timeout_s=LAUNCH_S)


every_process = pytest.mark.parametrize("process", [0, 1])


@every_process
def test_d8_both_processes_end_with_the_same_weights(process: int) -> None:
    """dy/dw = 12, of which each stage has 6; a step of 0.1 leaves 0.8."""
    found = by_processes()[process].d8

    assert found.losses == [12.0]
    assert {key: gradient.item() for key, gradient in found.gradients.items()} == {"0.w": 12.0, "1.w": 12.0}
    assert {key: value.item() for key, value in found.weights.items()} == {"0.w": pytest.approx(0.8), "1.w": pytest.approx(0.8)}


@every_process
@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[name for name, _, _ in SETUPS])
def test_losses_weights_and_gradients_are_those_of_threads_to_the_bit(process: int, number: int) -> None:
    found, expected = by_processes()[process].runs[number], by_threads().runs[number]

    assert found.losses == expected.losses
    assert same(found.weights, expected.weights)
    assert same(found.gradients, expected.gradients)


@every_process
def test_a_trainer_clips_saves_loads_and_evaluates_as_with_threads(process: int) -> None:
    found, expected = by_processes()[process], by_threads()

    assert found.losses[2:4] == found.losses[4:6]
    assert found.losses == expected.losses
    assert same(found.weights, expected.weights)
