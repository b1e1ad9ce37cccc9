"""The tests for a real GPU, run here on a simulated one: a mistake in a test itself need not wait for a machine with a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.executor.serial.scalar_cases import TRAINED
from tests.gpu import test_trainer as of_trainer
from tests.gpu import test_training as of_training

pytestmark = pytest.mark.usefixtures("one_gpu")

SCHEDULES = ["1f1b", "zb-v", "chimera", "pipedream", "xpipe"]
SETUPS = of_trainer.SETUPS


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule(name: str) -> None:
    of_training.test_every_schedule_trains_as_on_threads(name)


@pytest.mark.parametrize("recompute", ["except-last", pytest.param("always", marks=pytest.mark.slow)])
def test_gradients(recompute: str) -> None:
    of_training.test_gradients_are_those_of_the_whole_model(recompute)


@pytest.mark.parametrize("name", [TRAINED[0], *(pytest.param(name, marks=pytest.mark.slow) for name in TRAINED[1:])])
def test_cases(name: str) -> None:
    of_training.test_the_cases_worked_out_by_hand_hold(name)


@pytest.mark.parametrize(
    "check",
    [
        of_training.test_spans_are_recorded_in_order_and_memory_is_told,
        of_training.test_updates_stand_behind_the_backwards_that_they_need,
        of_training.test_random_numbers_are_those_of_the_seed_and_come_again_when_recomputed,
        of_trainer.test_an_error_on_the_gpu_names_its_task_and_leaves_no_thread,
    ],
)
def test_a_training(check: Callable[[], None]) -> None:
    check()


def test_autocast() -> None:
    """On the CPU, whose autocast leaves float64 alone too."""
    assert of_training.types_under_autocast("cpu", "cuda") == {torch.bfloat16}


def test_an_error_of_a_tensor_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    of_training.test_an_error_on_the_gpu_names_its_task()


@pytest.mark.parametrize("setup", [SETUPS[0], *(pytest.param(setup, marks=pytest.mark.slow) for setup in SETUPS[1:])], ids=str)
def test_steps(setup: Any) -> None:
    of_trainer.test_steps_and_evaluations_are_those_of_threads(setup)


@pytest.mark.parametrize("name", ["xpipe", pytest.param("1f1b", marks=pytest.mark.slow)])
def test_checkpoints(name: str, tmp_path: Path) -> None:
    of_trainer.test_a_checkpoint_goes_on_bit_for_bit(name, tmp_path)


@pytest.mark.parametrize("name", ["1f1b", "pipedream"])
def test_timelines(name: str) -> None:
    of_trainer.test_a_timeline_is_on_the_clock_of_the_host_and_in_order(name)


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    of_trainer.test_memory_does_not_grow_with_the_number_of_steps_or_of_shapes()
