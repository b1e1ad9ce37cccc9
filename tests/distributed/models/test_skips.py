"""Skip connections between processes: as between threads, bit for bit. One launch of three processes."""

from functools import cache
from typing import Any

import pytest
from torch import nn

from executor.trainer.trainer import Trainer
from executor.training import train
from executor.workers.distributed.meeting.launch import launch
from tests.distributed.programs.work import LAUNCH_S, TIMEOUT_S, Found, same
from tests.executor.small.models import batches, sgd
from tests.executor.small.skipping import compiled_with, fan, pipeline_with, unet

SETUPS: list[tuple[str, int, dict[str, Any]]] = [
    ("1f1b", 3, {}),
    ("zb-h1", 3, {"recompute": "always"}),
    ("pipedream", 3, {"num_mini_batches": 5}),
    ("xpipe", 3, {"num_mini_batches": 5}),
    ("interleaved-1f1b", 6, {"stages_per_device": 2}),
]


def everything(workers: str) -> tuple[list[Found], list[float]]:
    found = []
    for name, num_stages, options in SETUPS:
        made = pipeline_with(fan(num_stages))
        graph = compiled_with(made, name, (3, 2), **options)
        found.append(Found.of(train(graph, made, batches(graph.program.num_mini_batches), workers=workers, timeout=TIMEOUT_S)))
    with Trainer(
        unet(3),
        schedule="1f1b",
        num_micro_batches=2,
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        workers=workers,
        timeout=TIMEOUT_S,
    ) as trainer:
        losses = [trainer.step(*pair).loss for pair in batches(3)]
        losses.append(trainer.evaluate(batches(2))["loss"])
    return found, losses


@cache
def by_threads() -> tuple[list[Found], list[float]]:
    return everything("threads")


@cache
def by_processes() -> list[tuple[list[Found], list[float]]]:
    return launch(everything, "distributed", num_processes=3, timeout_s=LAUNCH_S)


@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[name for name, _, _ in SETUPS])
def test_losses_weights_gradients_and_reads_are_those_of_threads(number: int) -> None:
    expected = by_threads()[0][number]
    for process in by_processes():
        found = process[0][number]
        assert found.losses == expected.losses
        assert same(found.weights, expected.weights)
        assert same(found.gradients, expected.gradients)
        assert found.reads == expected.reads


def test_a_trainer_steps_and_evaluates_as_with_threads() -> None:
    for process in by_processes():
        assert process[1] == by_threads()[1]
