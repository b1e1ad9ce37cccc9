"""The same training once more, task by task in one thread, by hand-written derivatives: what a run has to come out as.

Stages of equal layers y = tanh(x Wᵀ + b) and the mean square error need no automatic differentiation:

    dz = dy (1 - y²)    dW = dzᵀ x    db = Σ dz    dx = dz W

`x` and `y` are what the forward saved, `W` what the task that differentiates reads by the graph, so a backward on other
weights than its forward's (weight prediction, no stash) is one line here, and nothing of the executor is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph

Array = NDArray[np.float64]
Layer = tuple[Array, Array]
"""Weight (outputs, inputs) and bias (outputs)."""
Layers = list[Layer]


@dataclass(frozen=True, slots=True)
class Momentum:
    """SGD with momentum: buffer ← momentum · buffer + gradient, w ← w − rate · buffer."""

    rate: float
    momentum: float


@dataclass(frozen=True, slots=True, eq=False)
class SerialOutcome:
    """What a training ends with."""

    losses: list[float]
    """Mean square error of every mini-batch at the weights that its forwards read."""
    weights: list[Layers]
    """Newest weights by stage."""


def train_unpartitioned(stages: Sequence[Layers], data: Sequence[tuple[Array, Array]], *, sgd: Momentum) -> SerialOutcome:
    """Train the whole model on whole mini-batches, one after the other."""
    layers = [layer for stage in stages for layer in stage]
    buffers = [(np.zeros_like(weight), np.zeros_like(bias)) for weight, bias in layers]
    losses = []
    for inputs, targets in data:
        saved = forward(layers, inputs)
        # mean square error: its gradient by the output is 2 error / size
        error = saved[-1][1] - targets
        losses.append(float((error**2).mean()))
        gradients, _ = backward(layers, saved, 2.0 * error / error.size)
        buffers = [_moved(buffer, gradient, sgd) for buffer, gradient in zip(buffers, gradients, strict=True)]
        layers = [_step(layer, buffer, sgd.rate) for layer, buffer in zip(layers, buffers, strict=True)]
    cut = np.cumsum([0, *(len(stage) for stage in stages)]).tolist()
    return SerialOutcome(losses, [layers[low:high] for low, high in pairwise(cut)])


def train_serially(
    graph: TaskGraph, stages: Sequence[Layers], data: Sequence[tuple[Array, Array]], *, sgd: Momentum
) -> SerialOutcome:
    """Execute the graph's tasks one by one, each on the version that the graph names.

    `data` has one (inputs, targets) pair per mini-batch of the program, samples along the first axis.
    """
    run = _Run(graph, sgd, [_Stage([list(layers)]) for layers in stages], _micro_batches(graph, data))
    for task in graph.topology.order.tolist():
        if task < graph.num_compute_tasks:
            run.execute(task)
    losses = [float(sum(run.losses.get(j, 0.0) for j in members)) for members in _members(graph)]
    return SerialOutcome(losses, [stage.versions[-1] for stage in run.stages])


def forward(layers: Layers, inputs: Array) -> list[tuple[Array, Array]]:
    """Return what every layer saves: its input and output."""
    saved = []
    for weight, bias in layers:
        outputs = np.tanh(inputs @ weight.T + bias)
        saved.append((inputs, outputs))
        inputs = outputs
    return saved


def backward(layers: Layers, saved: list[tuple[Array, Array]], gradient: Array) -> tuple[Layers, Array]:
    """Return the gradients of the layers and of their input, by these weights on what a forward saved."""
    gradients: Layers = []
    for (weight, _), (inputs, outputs) in zip(reversed(layers), reversed(saved), strict=True):
        inner = gradient * (1.0 - outputs**2)
        gradients.append((inner.T @ inputs, inner.sum(axis=0)))
        gradient = inner @ weight
    return gradients[::-1], gradient


def _moved(buffer: Layer, gradient: Layer, sgd: Momentum) -> Layer:
    return sgd.momentum * buffer[0] + gradient[0], sgd.momentum * buffer[1] + gradient[1]


def _step(layer: Layer, direction: Layer, rate: float) -> Layer:
    return layer[0] - rate * direction[0], layer[1] - rate * direction[1]


def _members(graph: TaskGraph) -> list[range]:
    m = graph.program.num_micro_batches
    return [range(n * m, (n + 1) * m) for n in range(graph.program.num_mini_batches)]


@dataclass(frozen=True, slots=True, eq=False)
class _MicroBatch:
    inputs: Array
    targets: Array
    share: float
    """Its samples, of those of its mini-batch."""


def _micro_batches(graph: TaskGraph, data: Sequence[tuple[Array, Array]]) -> list[_MicroBatch]:
    m = graph.program.num_micro_batches
    return [
        _MicroBatch(inputs, targets, len(inputs) / len(whole))
        for whole, answers in data
        for inputs, targets in zip(np.array_split(whole, m), np.array_split(answers, m), strict=True)
    ]


@dataclass(slots=True)
class _Stage:
    """One stage: all versions of its weights so far, and the direction of the update that made each."""

    versions: list[Layers]
    directions: list[Layers | None] = field(default_factory=lambda: [None])
    saved: dict[int, list[tuple[Array, Array]]] = field(default_factory=dict)
    """By micro-batch: what its forward (or recomputation) saved."""
    sent: dict[int, Array] = field(default_factory=dict)
    """By micro-batch: the output of its forward, which a recomputation on other weights does not change."""
    arriving: dict[int, Array] = field(default_factory=dict)
    """By micro-batch: the gradient of its output."""
    gradients: dict[int, Layers] = field(default_factory=dict)
    """By micro-batch, until the update."""


@dataclass(slots=True)
class _Run:
    graph: TaskGraph
    sgd: Momentum
    stages: list[_Stage]
    micro_batches: list[_MicroBatch]
    losses: dict[int, float] = field(default_factory=dict)

    def execute(self, task: int) -> None:
        graph = self.graph
        kind, stage, j = Kind(graph.kind[task]), int(graph.stage[task]), int(graph.micro_batch[task])
        version, horizon = int(graph.version[task]), int(graph.horizon[task])
        match kind:
            case Kind.UPDATE:
                self._update(stage, task)
            case Kind.FORWARD | Kind.OVERLAPPED:
                self._forward(stage, j, self._read(stage, version, horizon))
            case Kind.BACKWARD | Kind.INPUT_GRAD:
                self._backward(stage, j, self._read(stage, version, horizon))
            case Kind.RECOMPUTE:
                self._recompute(stage, j, self._read(stage, version, horizon))
        if kind is Kind.OVERLAPPED:
            self._second_half(int(np.searchsorted(graph.pairs.task, task)))

    def _second_half(self, pair: int) -> None:
        pairs = self.graph.pairs
        stage = int(pairs.stage[pair])
        weights = self._read(stage, int(pairs.version[pair]), int(pairs.horizon[pair]))
        self._backward(stage, int(pairs.micro_batch[pair]), weights)

    def _read(self, stage: int, version: int, horizon: int) -> Layers:
        """Return the weights of a version, predicted over `horizon` updates along the direction that made it."""
        weights, direction = self.stages[stage].versions[version], self.stages[stage].directions[version]
        if not horizon or direction is None:
            return weights
        ahead = horizon * self.sgd.rate
        return [_step(layer, part, ahead) for layer, part in zip(weights, direction, strict=True)]

    def _forward(self, stage: int, j: int, weights: Layers) -> None:
        own, micro_batch = self.stages[stage], self.micro_batches[j]
        own.saved[j] = forward(weights, self.stages[stage - 1].sent.pop(j) if stage else micro_batch.inputs)
        if stage < len(self.stages) - 1:
            own.sent[j] = own.saved[j][-1][1]
        else:
            self.losses[j] = float((self._seed(stage, j) ** 2).mean()) * micro_batch.share

    def _recompute(self, stage: int, j: int, weights: Layers) -> None:
        """Do the forward again; on the last stage the loss, too, so that backward starts from what it gives now."""
        saved = self.stages[stage].saved
        saved[j] = forward(weights, saved[j][0][0])
        if stage == len(self.stages) - 1:
            self._seed(stage, j)

    def _seed(self, stage: int, j: int) -> Array:
        """Let the last stage's gradient arrive, and return the error that it stands for."""
        own, micro_batch = self.stages[stage], self.micro_batches[j]
        error = own.saved[j][-1][1] - micro_batch.targets
        own.arriving[j] = 2.0 * error / error.size * micro_batch.share
        return error

    def _backward(self, stage: int, j: int, weights: Layers) -> None:
        """Differentiate; a weight gradient uses the same `dz`, so it is complete here, wherever its W stands."""
        own = self.stages[stage]
        own.gradients[j], gradient = backward(weights, own.saved[j], own.arriving.pop(j))
        if stage:
            self.stages[stage - 1].arriving[j] = gradient

    def _update(self, stage: int, task: int) -> None:
        own, members = self.stages[stage], self.graph.members(task)
        if len(own.versions) > self.graph.version[task]:
            return  # another replica has made this version
        num_mini_batches = len(members) // self.graph.program.num_micro_batches
        # C3: micro-batches are weighted by their share already, so those of a mini-batch are added; C11: mini-batches are averaged
        gradients = [own.gradients.pop(j) for j in members]
        direction = [_mean(parts, num_mini_batches) for parts in zip(*gradients, strict=True)]
        before = own.directions[-1]
        if before is not None:
            direction = [_moved(part, new, self.sgd) for part, new in zip(before, direction, strict=True)]
        own.directions.append(direction)
        own.versions.append([_step(layer, part, self.sgd.rate) for layer, part in zip(own.versions[-1], direction, strict=True)])


def _mean(parts: Sequence[Layer], num_mini_batches: int) -> Layer:
    """Average the gradients of one layer over mini-batches; those of a mini-batch's micro-batches are shares already."""
    weights, biases = zip(*parts, strict=True)
    return np.sum(weights, axis=0) / num_mini_batches, np.sum(biases, axis=0) / num_mini_batches
