"""Train a model with skip connections serially, every micro-batch with the versions that a graph names: what has to come out.

One call of autograd over the whole model for each micro-batch; nothing of the executor is used. Only for graphs whose backwards
read what their forwards read.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from executor.model.stages import Stages
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from tests.executor.skip_models import Data, Whole

RATE, MOMENTUM = 0.1, 0.9
"""Of `tests.executor.models.sgd`."""

Weights = dict[str, Tensor]


class _Serial:
    def __init__(self, graph: TaskGraph, stages: Stages, data: Data) -> None:
        self.graph, self.model = graph, Whole(stages)
        m = graph.program.num_micro_batches
        cut = [(x.tensor_split(m), y.tensor_split(m), len(x)) for x, y in data]
        self.parts = [(x, y, len(x) / size) for xs, ys, size in cut for x, y in zip(xs, ys, strict=True)]
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
        named = {f"stages.{stage}.{name}": value for stage, own in enumerate(leaves) for name, value in own.items()}
        x, y, _ = self.parts[j]
        return nn.functional.mse_loss(functional_call(self.model, named, (x,)), y), leaves

    def update(self, stage: int, members: Sequence[int]) -> None:
        averaged = len(members) // self.graph.program.num_micro_batches
        total = {name: torch.zeros_like(value) for name, value in self.versions[stage][-1].items()}
        for j in members:
            loss, leaves = self.loss(j)
            gradients = torch.autograd.grad(loss * self.parts[j][2] / averaged, list(leaves[stage].values()))
            total = {name: total[name] + gradient for name, gradient in zip(total, gradients, strict=True)}
        before = self.moving[stage][-1]
        moving = {name: value + (0 if before is None else MOMENTUM * before[name]) for name, value in total.items()}
        self.moving[stage].append(moving)
        self.versions[stage].append({name: value - RATE * moving[name] for name, value in self.versions[stage][-1].items()})


def train_serially(graph: TaskGraph, stages: Stages, data: Data) -> tuple[list[float], dict[str, Tensor]]:
    """Return losses by mini-batch, and the final weights under the names of the stages."""
    run = _Serial(graph, stages, data)
    for index in graph.topology.order.tolist():
        task = graph.task(index)
        if task.kind is Kind.FORWARD:
            run.read[task.stage, task.micro_batch] = run.weights(task.stage, task.version, task.horizon)
        elif task.kind in {Kind.BACKWARD, Kind.RECOMPUTE}:
            read = run.weights(task.stage, task.version, task.horizon)
            assert all(torch.equal(read[name], value) for name, value in run.read[task.stage, task.micro_batch].items())
        elif task.kind is Kind.UPDATE and len(run.versions[task.stage]) == task.version:  # of replicas the first
            run.update(task.stage, graph.members(index))
    m = graph.program.num_micro_batches
    losses = [run.loss(j)[0].item() * run.parts[j][2] for j in range(len(run.parts))]
    found = {f"{stage}.{name}": value for stage, versions in enumerate(run.versions) for name, value in versions[-1].items()}
    return [sum(losses[first : first + m]) for first in range(0, len(losses), m)], found


def _own(stage: nn.Module) -> Weights:
    return {name: value.detach().clone() for name, value in stage.named_parameters()}
