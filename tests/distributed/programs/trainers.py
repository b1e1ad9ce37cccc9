"""Trainers in processes: the same steps as with threads."""

import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.trainer.updating.update_log import UpdateFacts
from executor.workers.environment import process_number
from schedir.errors import ArgumentError, RunError
from schedir.ir.action import Kind
from tests.distributed.programs import faults
from tests.distributed.programs.work import TIMEOUT_S
from tests.executor.small.models import batches, mlp, sgd
from tests.executor.trainer.updating.test_torch_scaler import trained_in_half
from tests.left_threads import left_since

Setup = tuple[str, int, int, int, dict[str, Any]]
"""(schedule, devices, stages, micro-batches, options)."""


@dataclass
class Trained:
    losses: list[float]
    between: dict[str, float]
    """An evaluation between two steps."""
    after: dict[str, float]
    """An evaluation of the drained stages."""
    updates: list[UpdateFacts]
    weights: dict[str, Tensor]
    start: list[float]
    end: list[float]
    meta: dict[str, Any]


def step_by_step(setup: Setup, workers: str) -> Trained:
    """Train, evaluate in between, drain, train on, evaluate again."""
    schedule, devices, stages, micro_batches, options = setup
    data = batches(12, samples=micro_batches + 1)
    with Trainer(
        mlp(stages),
        schedule=schedule,
        num_devices=devices,
        num_micro_batches=micro_batches,
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        workers=workers,
        timeout=TIMEOUT_S,
        **options,
    ) as trainer:
        trainer.log_updates()
        steps = [trainer.step(*pair) for pair in data[:5]]
        between = trainer.evaluate(batches(2, seed=9))
        steps += [trainer.step(*pair) for pair in data[5:8]]
        trainer.drain()
        steps += [trainer.step(*pair) for pair in data[8:]]
        trainer.drain()
        after, timeline = trainer.evaluate(batches(2, seed=9)), trainer.timeline
        weights, updates = trainer.state_dict(), list(trainer.take_updates())
        losses = [step.loss for step in steps]
    return Trained(losses, between, after, updates, weights, timeline.start.tolist(), timeline.end.tolist(), dict(timeline.meta))


def saved_and_gone_on(folder: str, workers: str) -> tuple[list[float], dict[str, Tensor]]:
    """Train four steps, save, and go on with another trainer."""
    options: dict[str, Any] = {"schedule": "xpipe", "num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd}
    data = batches(8, samples=4)
    with Trainer(mlp(2), workers=workers, timeout=TIMEOUT_S, **options) as trainer:
        for pair in data[:4]:
            trainer.step(*pair)
        trainer.save(folder)
    with Trainer(mlp(2, seed=5), workers=workers, timeout=TIMEOUT_S, **options) as trainer:
        begin = trainer.load(folder).mini_batch
        losses = [trainer.step(*pair) for pair in data[begin:]]
        trainer.drain()
        return [step.loss for step in losses], trainer.state_dict()


def loaded_apart(folder: str) -> list[str]:
    """Go on in process 0 from what `saved_and_gone_on` has saved; return what is said where process 1 does not."""
    options: dict[str, Any] = {"schedule": "xpipe", "num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd}
    other = f"{folder}/other"
    with Trainer(mlp(2, seed=5), timeout=TIMEOUT_S, **options) as trainer:
        for pair in batches(4, seed=8):
            trainer.step(*pair)
        trainer.save(other)
    said: list[str] = []
    for begin in (Trainer.begin_anew, lambda trainer: trainer.load(other)):
        try:
            with Trainer(mlp(2), timeout=TIMEOUT_S, **options) as trainer:
                (begin if process_number() else lambda trainer: trainer.load(folder))(trainer)
        except ArgumentError as error:
            said.append(str(error))
    return said


def not_saved(folder: str) -> tuple[str, float]:
    """Save where nothing can be written; return what is said, and the loss of a step afterwards."""
    with Trainer(mlp(2), num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=TIMEOUT_S) as trainer:
        try:
            trainer.save(Path(folder) / "a file")
        except (RunError, ValueError) as error:
            text = f"{type(error).__name__}: {error}"
        return text, trainer.step(*batches(1)[0]).loss


def scaled(workers: str) -> tuple[dict[str, Tensor], list[float], tuple[int, ...], float | None]:
    """Train in float16, with scales so large that some updates are left out; only process 1 sees the loss, both see the scale."""
    (weights, losses), trainer = trained_in_half(2, "1f1b", clip=0.05, workers=workers)
    return weights, losses, trainer.skipped_updates, trainer.loss_scale


def spoilt(on_nan: str) -> str:
    """Train on an input that is no number; return what this process says."""
    try:
        options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "on_nan": on_nan}
        with Trainer(mlp(2), timeout=TIMEOUT_S, **options) as trainer:
            trainer.step(*((tensor * float("nan")) for tensor in batches(1)[0]))
    except (RunError, Warning) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def said(*, seed: int = 1, fault: faults.Task | None = None) -> str:
    """Train with other data or a fault; return what this process says."""
    undo = faults.at(fault, faults.raise_lookup_error) if fault is not None else lambda: None
    try:
        with Trainer(mlp(2), num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=TIMEOUT_S) as trainer:
            for pair in batches(3, seed=seed):
                trainer.step(*pair)
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return f"{type(error).__name__}: {error}"
    finally:
        undo()
    return ""


def after_close() -> str:
    """Ask for a timeline when the processes have parted."""
    with Trainer(mlp(2), num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=TIMEOUT_S) as trainer:
        trainer.step(*batches(1)[0])
    trainer.close()
    try:
        return str(trainer.timeline)
    except RunError as error:
        return str(error)


def failing_data() -> Iterator[tuple[Tensor, Tensor]]:
    """End in an error on process 0."""
    for number, pair in enumerate(batches(6)):
        if number == 4 and process_number() == 0:
            raise OSError("the disk is gone")
        yield pair


def data_fails() -> str:
    """Let the data of process 0 end in an error; return what this process says."""
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": TIMEOUT_S}
    try:
        with Trainer(mlp(2), schedule="xpipe", **options) as trainer:
            for pair in failing_data():
                trainer.step(*pair)
            trainer.drain()
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return f"{type(error).__name__}: {error}"
    return ""


def dropped() -> str:
    """Let process 0 forget its trainer; return what this process says."""
    trainer = Trainer(mlp(2), num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=TIMEOUT_S)
    trainer.step(*batches(1)[0])
    if process_number() == 0:
        del trainer
        gc.collect()
        return ""
    try:
        trainer.step(*batches(1)[0])
        trainer.close()
    except RunError as error:
        return str(error)
    return "nothing"


def edited(by: tuple[int, ...], *, schedule: str = "xpipe", then: str = "step", workers: str = "auto") -> str | list[float]:
    """Train, drain, halve all weights in some processes, and go on; return the losses, or what this process says."""
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": TIMEOUT_S}
    stages = mlp(2)
    try:
        with Trainer(stages, schedule=schedule, workers=workers, **options) as trainer:
            steps = [trainer.step(*pair) for pair in batches(4)]
            trainer.drain()
            trainer.state_dict()  # so that every process halves the same
            if process_number() in by:
                halve(stages)
            steps += [trainer.step(*pair) for pair in (batches(4, seed=9) if then == "step" else ())]
            if then == "save":
                trainer.state_dict()
            if then != "close":
                trainer.drain()
            return [step.loss for step in steps]
    except ArgumentError as error:
        return str(error)


@torch.no_grad()
def halve(stages: list[nn.Module]) -> None:
    for stage in stages:
        for parameter in stage.parameters():
            parameter.mul_(0.5)


def interleaved() -> list[float]:
    """Two trainers whose steps take turns; return their losses."""
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": TIMEOUT_S}
    with Trainer(mlp(2), schedule="xpipe", **options) as first, Trainer(mlp(2, seed=3), schedule="1f1b", **options) as second:
        steps = [step for pair in batches(5) for step in (first.step(*pair), second.step(*pair))]
        first.drain()
        return [step.loss for step in steps]


def everything(setups: list[Setup], folder: str) -> tuple[list[Trained], dict[str, Any]]:
    """Train by all setups, save and go on, then train wrongly."""
    trained = [step_by_step(setup, "auto") for setup in setups]
    gone_on = saved_and_gone_on(folder, "auto")
    return trained, {
        "gone on": gone_on,
        "loaded apart": loaded_apart(folder),
        "not saved": not_saved(folder),
        "scaled": scaled("auto"),
        "spoilt": spoilt("raise"),
        "error": said(fault=(Kind.BACKWARD, 1, 1)),
        "data": said(seed=process_number()),
        "after close": after_close(),
        "data fails": data_fails(),
        "dropped": dropped(),
        "interleaved": interleaved(),
        "edited by all": [edited((0, 1), schedule=schedule) for schedule in ("1f1b", "xpipe")],
        "edited by one": [
            edited((process,), schedule=schedule, then=then)
            for schedule, process, then in (
                ("1f1b", 0, "step"),
                ("1f1b", 1, "step"),
                ("xpipe", 1, "step"),
                ("xpipe", 0, "save"),
                ("xpipe", 1, "close"),
            )
        ],
        "threads": left_since([thread for thread in threading.enumerate() if thread.name != "trainer"]),
        "afterwards": said(),
    }
