"""Train a model serially, every micro-batch with the versions that a graph names: what has to come out.

One call of autograd over the whole model for each micro-batch; nothing of the executor is used. Only for graphs whose backwards
read what their forwards read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from executor.model.stages import Stages
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from tests.executor.small.skipping import Data, Whole

RATE, MOMENTUM = 0.1, 0.9
"""Of `tests.executor.small.models.sgd`."""

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Uncut:
    """A model in one piece, and the micro-batches that it is trained on."""

    loss: Callable[[int, Sequence[Weights]], Tensor]
    """(micro-batch, weights of every stage under the stage's own names) -> its mean loss."""
    shares: Sequence[float]
    """What every micro-batch counts in its mini-batch; those of a mini-batch sum to 1."""


class Serial:
    """A serial execution of the version table."""

    def __init__(self, graph: TaskGraph, stages: Sequence[nn.Module], uncut: Uncut) -> None:
        self.graph, self.uncut = graph, uncut
        self.versions: list[list[Weights]] = [[_own(stage)] for stage in stages]
        self.moving: list[list[Weights | None]] = [[None] for _ in stages]
        """By stage and version: the momentum of the update that made it."""
        self.read: dict[tuple[int, int], Weights] = {}
        """By stage and micro-batch: the weights that its forward read."""

    def weights(self, stage: int, version: int, horizon: int) -> Weights:
        """Return a version, or a prediction of it over `horizon` updates along its last one."""
        found, moving = self.versions[stage][version], self.moving[stage][version]
        if not horizon or moving is None:
            return found
        return {name: value - horizon * RATE * moving[name] for name, value in found.items()}

    def loss(self, j: int) -> tuple[Tensor, list[Weights]]:
        """Return a micro-batch's loss, and the weights of every stage that it depends on."""
        read = [self.read[stage, j] for stage in range(len(self.versions))]
        leaves = [{name: value.clone().requires_grad_() for name, value in own.items()} for own in read]
        return self.uncut.loss(j, leaves), leaves

    def update(self, stage: int, members: Sequence[int]) -> None:
        averaged = len(members) // self.graph.program.num_micro_batches
        total = {name: torch.zeros_like(value) for name, value in self.versions[stage][-1].items()}
        for j in members:
            loss, leaves = self.loss(j)
            own = list(leaves[stage].values())
            # a bias that a model has and does not use has no gradient, and stays
            gradients: tuple[Tensor | None, ...] = torch.autograd.grad(
                loss * self.uncut.shares[j] / averaged, own, allow_unused=True
            )
            found = [torch.zeros_like(leaf) if each is None else each for leaf, each in zip(own, gradients, strict=True)]
            total = {name: total[name] + gradient for name, gradient in zip(total, found, strict=True)}
        before = self.moving[stage][-1]
        moving = {name: value + (0 if before is None else MOMENTUM * before[name]) for name, value in total.items()}
        self.moving[stage].append(moving)
        self.versions[stage].append({name: value - RATE * moving[name] for name, value in self.versions[stage][-1].items()})

    def perform(self, index: int) -> None:
        """Do what a task of the graph does."""
        task = self.graph.task(index)
        if task.kind is Kind.FORWARD:
            self.read[task.stage, task.micro_batch] = self.weights(task.stage, task.version, task.horizon)
        elif task.kind in {Kind.BACKWARD, Kind.RECOMPUTE}:
            self.backward(task.stage, task.micro_batch, self.weights(task.stage, task.version, task.horizon))
        elif task.kind is Kind.UPDATE and len(self.versions[task.stage]) == task.version:  # of replicas the first
            self.update(task.stage, self.graph.members(index))

    def backward(self, stage: int, j: int, read: Weights) -> None:
        """Hear what a backward reads: what its forward read."""
        assert all(torch.equal(read[name], value) for name, value in self.read[stage, j].items())


def train_serially(graph: TaskGraph, stages: Stages, data: Data) -> tuple[list[float], dict[str, Tensor]]:
    """Return losses by mini-batch, and the final weights under the names of the stages."""
    model, m = Whole(stages), graph.program.num_micro_batches
    cut = [(x.tensor_split(m), y.tensor_split(m), len(x)) for x, y in data]
    parts = [(x, y, len(x) / size) for xs, ys, size in cut for x, y in zip(xs, ys, strict=True)]

    def loss(j: int, weights: Sequence[Weights]) -> Tensor:
        named = {f"stages.{stage}.{name}": value for stage, own in enumerate(weights) for name, value in own.items()}
        x, y, _ = parts[j]
        return nn.functional.mse_loss(functional_call(model, named, (x,)), y)

    losses, versions = run_serially(graph, stages, Uncut(loss, [share for _, _, share in parts]))
    return losses, {f"{stage}.{name}": value for stage, own in enumerate(versions) for name, value in own.items()}


def train_named_serially(
    graph: TaskGraph,
    model: nn.Module,
    stages: Sequence[nn.Module],
    *,
    parts: Sequence[tuple[dict[str, Tensor], Tensor, float]],
    loss: Callable[[Any, Tensor], Tensor],
) -> tuple[list[float], dict[str, Tensor]]:
    """Train a model whose stages have its own names for their parameters, on (inputs by name, target, share) of every micro-batch.

    The stages say no more than which parameter is whose: it is the model's own forward that runs. Return losses by mini-batch,
    and the final weights under the model's names.
    """

    def loss_of(j: int, weights: Sequence[Weights]) -> Tensor:
        inputs, target, _ = parts[j]
        named = {name: value for own in weights for name, value in own.items()}
        return loss(functional_call(model, named, (), inputs), target)

    losses, versions = run_serially(graph, stages, Uncut(loss_of, [share for _, _, share in parts]))
    return losses, {name: value for own in versions for name, value in own.items()}


def run_serially(graph: TaskGraph, stages: Sequence[nn.Module], uncut: Uncut) -> tuple[list[float], list[Weights]]:
    """Return losses by mini-batch, and every stage's final weights."""
    return follow(Serial(graph, stages, uncut))


def follow(run: Serial) -> tuple[list[float], list[Weights]]:
    """Do all tasks of a run's graph; return losses by mini-batch, and every stage's final weights."""
    for index in run.graph.topology.order.tolist():
        run.perform(index)
    m = run.graph.program.num_micro_batches
    losses = [run.loss(j)[0].item() * share for j, share in enumerate(run.uncut.shares)]
    return [sum(losses[first : first + m]) for first in range(0, len(losses), m)], [versions[-1] for versions in run.versions]


def _own(stage: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in stage.named_parameters()}
