"""Problems that users of other tools reported, with the right values, on two threads and in two processes. One launch."""

import atexit
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from executor.workers.distributed.meeting.launch import launch
from tests.distributed.programs import known_problems
from tests.distributed.programs.known_problems import DROPOUTS, NORMS, SCHEDULES, everything
from tests.distributed.programs.work import LAUNCH_S
from tests.executor.checkpoint.checkpointed import make_trainer
from tests.executor.checkpoint.test_checkpoint import steps


@cache
def folder() -> Path:
    """Return where this process has saved three steps, and six in one go, by every schedule."""
    made = Path(mkdtemp(prefix="schedir-known-problems-"))
    atexit.register(rmtree, made)
    for schedule in SCHEDULES:
        with make_trainer(schedule, 2) as trainer:
            steps(trainer, 0, 3)
            trainer.save(made / schedule / "three")
            steps(trainer, 3, 6)
            trainer.save(made / schedule / "six")
    return made


@cache
def launched() -> list[dict[str, Any]]:
    return launch(everything, str(folder()), num_processes=2, timeout_s=LAUNCH_S)


def of_all(name: str, by_threads: Any) -> Iterator[Any]:
    """Yield what threads and each of the processes found."""
    yield by_threads
    yield from (process[name] for process in launched())


def test_d5_a_token_counts_the_same_in_whatever_micro_batch_it_is() -> None:
    """One valid token of loss 4, three of loss 0: 1.0, no mean of means (2.0), no NaN of the micro-batch without any. dw = 1."""
    for loss, weights in of_all("tokens", known_problems.unequal_tokens("threads")):
        assert loss == pytest.approx(1.0, abs=1e-15)
        assert weights == pytest.approx([0.9, 0.9], abs=1e-15)


def test_d7_the_norm_is_that_of_all_devices() -> None:
    """Gradients 3 and 4: 5 together; clipped to 1 they are 0.6 and 0.8 (1 and 1 by norms of their own), to 10 what they are."""
    by_threads = [known_problems.clipped(1.0, "threads"), known_problems.clipped(10.0, "threads")]
    for below, above in of_all("clipped", by_threads):
        assert below == pytest.approx([0.6, 0.8], rel=1e-6)
        assert above == [3.0, 4.0]


@pytest.mark.parametrize("key", NORMS, ids="-".join)
def test_d11_batch_norm_counts_every_micro_batch_once_whether_recomputed_or_not(key: tuple[str, str]) -> None:
    """The double update would give 1.0279 or 1.0679, 1.3439, 4."""
    mean, variance, moves = NORMS[key]
    for found in of_all("norm", {key: known_problems.norm_statistics(*key, "threads")}):
        assert found[key] == (pytest.approx(mean, abs=1e-12), pytest.approx(variance, abs=5e-7), moves)


def test_d12_dropout_is_the_same_for_the_same_seed_in_processes_too() -> None:
    by_threads = [known_problems.with_dropout(seed, recompute, "threads") for seed, recompute in DROPOUTS]
    for first, again, recomputed, other in of_all("dropout", by_threads):
        assert first == again == recomputed == by_threads[0]
        assert other == by_threads[3] != first


def test_d13_autocast_and_grad_mode_are_entered_where_the_stages_compute() -> None:
    """In a plain worker thread both would be off: float32, and gradients whatever the caller says."""
    for seen in of_all("autocast", known_problems.autocast_and_grad_mode("threads")):
        assert seen == {(torch.bfloat16, True)}


def test_d14_an_evaluation_may_come_first_and_leaves_gradients_and_modes() -> None:
    by_threads = known_problems.evaluated_around_a_step("threads")
    for losses, untouched, same_modes in of_all("evaluated", by_threads):
        assert losses == by_threads[0]
        assert losses[2] < losses[0]
        assert untouched
        assert same_modes


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_d15_three_steps_and_three_in_other_processes_are_six(schedule: str) -> None:
    """Adam, a falling rate, dropout: weights and the optimizers' state, bit for bit. Continuous schedules drain to save."""
    launched()
    for name in ("model.safetensors", "optimizer.safetensors"):
        first, second = (folder() / schedule / each / "mini-batch-000006" / name for each in ("six", "both"))
        assert first.read_bytes() == second.read_bytes()
