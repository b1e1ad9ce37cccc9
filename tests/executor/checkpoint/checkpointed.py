"""A small training with everything that a checkpoint holds, as a function that a process of its own can run."""

from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

from executor.checkpoint.folder import has_checkpoints
from executor.model.cutting.split import split
from executor.recipe.epochs import EpochPlace, Epochs
from executor.trainer.trainer import Trainer
from tests.executor.small.models import WIDTH, batches

LAYERS = 6


def adam(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def nesterov(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


def adagrad(parameters: list[nn.Parameter]) -> Optimizer:
    """One whose updates are extrapolated where weights are predicted."""
    return torch.optim.Adagrad(parameters, lr=0.01)


OPTIMIZERS = {"adam": adam, "nesterov": nesterov, "adagrad": adagrad}


def make_trainer(schedule: str, num_stages: int = 3, optimizer: str = "adam", *, dropout: float = 0.2, seed: int = 0) -> Trainer:
    """Layers with dropout and batch norm, Adam, and rates that fall at the updates 2, 4 and 9."""
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(dropout), nn.BatchNorm1d(WIDTH)) for _ in range(LAYERS)]
    return Trainer(
        split(nn.Sequential(*layers).double(), num_stages),
        schedule=schedule,
        num_micro_batches=2,
        loss=nn.functional.mse_loss,
        optimizer=OPTIMIZERS[optimizer],
        lr_scheduler=lambda made: torch.optim.lr_scheduler.MultiStepLR(made, [2, 4, 9], 0.5),
        timeout=60,
        seed=seed,
    )


def shuffled(seed: int) -> DataLoader[tuple[torch.Tensor, ...]]:  # noqa: ARG001 - it shuffles by the process's numbers
    return DataLoader(TensorDataset(*batches(1, samples=40)[0]), batch_size=4, shuffle=True)


EVERY = 2


def train_with_checkpoints(folder: Path, schedule: str, num_mini_batches: int) -> None:
    """Train from the newest checkpoint on, or from the start, and save every few mini-batches."""
    with make_trainer(schedule) as trainer:
        torch.manual_seed(5)
        epochs = Epochs(shuffled, seed=0, num_epochs=None)
        if has_checkpoints(folder):
            epochs.go_on_from(EpochPlace.of(trainer.load(folder).data["place"]))
        for inputs, targets in epochs:
            if trainer.mini_batch == num_mini_batches:
                return
            trainer.step(inputs, targets)
            if trainer.mini_batch % EVERY == 0:
                assert epochs.place is not None
                trainer.save(folder, data={"place": epochs.place.plain()})
