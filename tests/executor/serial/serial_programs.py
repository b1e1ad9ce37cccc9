"""Train stages serially by any graph, whatever its forwards, backwards and recomputations read: what has to come out.

A stage that is kept gives what `serial_mixed` says of a model: gradients at the backward's weights on the values of
the forward, layer by layer. One that is computed again gives gradients of a whole stage at the backward's weights, on its input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from executor.model.stages import Stages
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from tests.executor.serial.serial_mixed import mixed_call
from tests.executor.serial.serial_versions import Serial, Uncut, Weights, follow

Data = Sequence[tuple[Tensor, Tensor]]


class Mixed(Serial):
    """A serial execution of any graph; a chain of stages, mean squared errors."""

    def __init__(self, graph: TaskGraph, stages: Sequence[nn.Module], data: Data) -> None:
        m = graph.program.num_micro_batches
        cut = [(x.tensor_split(m), y.tensor_split(m), len(x)) for x, y in data]
        self._parts = [(x, y) for xs, ys, _ in cut for x, y in zip(xs, ys, strict=True)]
        super().__init__(graph, stages, Uncut(_no_other_loss, [len(x) / size for xs, _, size in cut for x in xs]))
        self._stages = stages
        self.behind: dict[tuple[int, int], Weights] = {}
        """By stage and micro-batch: the weights that its backward reads."""
        recomputed = graph.kind == Kind.RECOMPUTE
        self.again = set(zip(graph.stage[recomputed].tolist(), graph.micro_batch[recomputed].tolist(), strict=True))

    def perform(self, index: int) -> None:
        """Do what a task of the graph does; a pair is a forward, then a backward."""
        task, pairs = self.graph.task(index), self.graph.pairs
        if task.kind is Kind.OVERLAPPED:
            self.read[task.stage, task.micro_batch] = self.weights(task.stage, task.version, task.horizon)
            (place,) = (pairs.task == index).nonzero()[0].tolist()
            stage, j = int(pairs.stage[place]), int(pairs.micro_batch[place])
            self.behind[stage, j] = self.weights(stage, int(pairs.version[place]), int(pairs.horizon[place]))
        elif task.kind is Kind.INPUT_GRAD:
            self.behind[task.stage, task.micro_batch] = self.weights(task.stage, task.version, task.horizon)
        else:
            super().perform(index)

    def backward(self, stage: int, j: int, read: Weights) -> None:
        """Note what a backward reads."""
        self.behind[stage, j] = read

    def loss(self, j: int) -> tuple[Tensor, list[Weights]]:
        """Return a micro-batch's loss at the forward's weights, and the leaves that its gradients are taken by."""
        x, target = self._parts[j]
        leaves = []
        for number, stage in enumerate(self._stages):
            forward = self.read[number, j]
            # the gradients of a stage do not depend on what earlier ones read backwards, which may not have been said yet
            leaf = {name: value.clone().requires_grad_() for name, value in self.behind.get((number, j), forward).items()}
            leaves.append(leaf)
            if (number, j) in self.again:
                made = functional_call(stage, leaf, (x,))
                with torch.no_grad():
                    value = functional_call(stage, forward, (x,))
                if number == len(self._stages) - 1:  # the loss of a last stage is its part: it is computed again, too
                    loss, said = nn.functional.mse_loss(made, target), nn.functional.mse_loss(value, target)
                    return loss + (said - loss).detach(), leaves
                x = made + (value - made).detach()
            else:
                x = mixed_call(stage, {"input": x}, forward=forward, backward=leaf)
        return nn.functional.mse_loss(x, target), leaves


def _no_other_loss(*_: object) -> Tensor:
    raise AssertionError("a Mixed has a loss of its own")


def train_by_graph(graph: TaskGraph, stages: Stages | Sequence[nn.Module], data: Data) -> tuple[list[float], dict[str, Tensor]]:
    """Return losses by mini-batch, and the final weights under the names of the stages."""
    losses, versions = follow(Mixed(graph, list(stages), data))
    return losses, {f"{stage}.{name}": value for stage, own in enumerate(versions) for name, value in own.items()}
