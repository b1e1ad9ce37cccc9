"""Trainers in processes: the same steps as with threads."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from executor.trainer import Trainer
from executor.workers.distributed.environment import process_number
from schedir.ir.action import Kind
from tests.distributed import faults
from tests.distributed.work import TIMEOUT_S
from tests.executor.models import batches, mlp, sgd

Setup = tuple[str, int, int, int, dict[str, Any]]
"""(schedule, devices, stages, micro-batches, options)."""


@dataclass
class Trained:
    losses: list[float]
    between: dict[str, float]
    """An evaluation between two steps."""
    after: dict[str, float]
    """An evaluation of the drained stages."""
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
        steps = [trainer.step(*pair) for pair in data[:5]]
        between = trainer.evaluate(batches(2, seed=9))
        steps += [trainer.step(*pair) for pair in data[5:8]]
        trainer.drain()
        steps += [trainer.step(*pair) for pair in data[8:]]
        trainer.drain()
        after, timeline = trainer.evaluate(batches(2, seed=9)), trainer.timeline
        weights = trainer.state_dict()
        losses = [step.loss for step in steps]
    return Trained(losses, between, after, weights, timeline.start.tolist(), timeline.end.tolist(), dict(timeline.meta))


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


def everything(setups: list[Setup]) -> tuple[list[Trained], dict[str, str]]:
    """Train by all setups, then wrongly."""
    trained = [step_by_step(setup, "auto") for setup in setups]
    return trained, {"error": said(fault=(Kind.BACKWARD, 1, 1)), "data": said(seed=process_number()), "afterwards": said()}
