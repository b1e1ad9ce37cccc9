"""The cases of tests/data/async_scalar.json: chains of one-weight stages, trained under every weight rule, worked out by hand.

C1 to C11 are the conventions that they follow: versions count from 0, a mini-batch's loss is the mean over its samples, updates go
to the newest true weights (C4), a saved backward reads its own weights on F's activations (C5), replicas average (C11), and so on.
"""

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from executor.model.pipeline import Pipeline
from executor.trainer.trainer import Trainer
from executor.training import Run, train
from schedir.compiler import compile_program
from schedir.ir.graph import TaskGraph
from tests import async_cases
from tests.repository import ROOT

FILE = ROOT / "tests" / "data" / "async_scalar.json"

_CONTENT = json.loads(FILE.read_text(encoding="utf-8"))
ALL: dict[str, dict[str, Any]] = _CONTENT["cases"]
FAULTS: dict[str, dict[str, str]] = _CONTENT["faults"]
"""By case and fault: how far the final weights move."""
VERSIONS_ALIVE: dict[str, dict[str, list[int]]] = _CONTENT["versions_alive"]
"""By case, and stage or stage.replica: [true versions, all sets] alive at once."""
TRAINED = async_cases.ALL
"""Cases of a schedule; the sequential references are others."""

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD lr 0.1": (torch.optim.SGD, {"lr": 0.1}),
    "SGD lr 0.05 momentum 0.9": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "SGD lr 0.1 momentum 0.9 dampening 0.9": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.9}),
    "SGD lr 0.05 momentum 0.9 nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "Adam lr 0.05 betas 0.9 0.999 eps 1e-8": (torch.optim.Adam, {"lr": 0.05}),
    "Adam lr 0.05, prediction with bias correction without exponent": (torch.optim.Adam, {"lr": 0.05}),
    "AdamW lr 0.05 weight_decay 0.1": (torch.optim.AdamW, {"lr": 0.05, "weight_decay": 0.1}),
    "RMSprop lr 0.01 alpha 0.99 eps 1e-8": (torch.optim.RMSprop, {"lr": 0.01}),
}


class Scalar(nn.Module):
    """y = w x, or tanh(w x)."""

    def __init__(self, weight: str, kind: str) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[float(weight)]], dtype=torch.float64))
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.linear(x, self.w)
        return torch.tanh(y) if self.kind == "tanh" else y


def half_square(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean() / 2


@dataclass
class Case:
    """One case, ready to train."""

    name: str
    graph: TaskGraph
    stages: list[Scalar]
    data: list[tuple[Tensor, Tensor]]

    @property
    def values(self) -> dict[str, Any]:
        return ALL[self.name]

    @property
    def adam_prediction(self) -> str:
        return "literal" if "without exponent" in self.values["optimizer"] else "bias-corrected"

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        kind, options = OPTIMIZERS[self.values["optimizer"]]
        return kind(parameters, **options)

    def train(self, *, workers: str = "threads") -> Run:
        pipeline = Pipeline(self.stages, loss=half_square, optimizer=self.optimizer, adam_prediction=self.adam_prediction)
        return train(self.graph, pipeline, self.data, workers=workers, timeout=60)

    def trainer(self) -> Trainer:
        """Return a trainer of the case's schedule, by its name and options: a program of a fixed length cannot go on."""
        schedule, options = async_cases.schedule_of(self.name)
        return Trainer(
            self.stages,
            schedule=schedule,
            num_micro_batches=self.values["T"],
            recompute=async_cases.recompute(self.name),
            loss=half_square,
            optimizer=self.optimizer,
            adam_prediction=self.adam_prediction,
            workers="threads",
            timeout=60,
            **options,
        )

    def final_weights(self) -> list[float]:
        return [stage.w.item() for stage in self.stages]

    def distance(self) -> float:
        """How far the stages' weights are from the final weights of the case."""
        expected = [float(weight) for weight in self.values["final_16"]]
        return max(abs(weight - right) for weight, right in zip(self.final_weights(), expected, strict=True))


def graph_of(name: str) -> TaskGraph:
    return compile_program(async_cases.program_of_schedule(name), recompute=async_cases.recompute(name))


def load(name: str) -> Case:
    """Return a case with fresh weights."""
    case = ALL[name]
    stages = [Scalar(weight, kind) for weight, kind in zip(case["w_init"], case["stages"], strict=True)]
    mini_batches = []
    for first in range(0, case["micro_batches"], case["T"]):
        samples = [sample for part in case["data"][first : first + case["T"]] for sample in part]
        table = torch.tensor([[float(value) for value in sample] for sample in samples], dtype=torch.float64)
        mini_batches.append((table[:, :1], table[:, 1:]))
    return Case(name, graph_of(name), stages, mini_batches)
