"""Prove that a schedule trains right: train briefly in float64 and compare with what has to come out.

A synchronous schedule is held against the unpartitioned model, all others against a serial execution of the versions that
the graph names (`schedir.workflows.checking.serial`); neither uses automatic differentiation or the executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from schedir.errors import RunError
from schedir.ir.graph import TaskGraph
from schedir.workflows.checking.serial import Array, Layers, Momentum, SerialOutcome, train_serially, train_unpartitioned

if TYPE_CHECKING:
    from executor import Run

WIDTH = 8
"""Numbers in a vector: every stage is a layer of WIDTH x WIDTH weights."""
SAMPLES = 2
"""Samples of a micro-batch; the first has one more, so that unequal sizes are proved, too."""
STEPS = 5
"""Mini-batches that a synchronous schedule trains at least."""
TOLERANCE = 1e-10
"""Largest difference of a loss or weight that float64 explains."""
SGD = Momentum(rate=0.5, momentum=0.9)


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """How far the run is from what has to come out."""

    reference: str
    """What it was compared with."""
    num_mini_batches: int
    loss_difference: float
    """Largest over mini-batches."""
    weight_differences: tuple[float, ...]
    """Largest of the final weights, by stage."""

    @property
    def agrees(self) -> bool:
        """True if nothing differs by more than `TOLERANCE`."""
        return max(self.loss_difference, *self.weight_differences) <= TOLERANCE

    def require(self) -> str:
        """Return one line that says what was proved; raise RunError if the run came out differently."""
        worst = max(range(len(self.weight_differences)), key=self.weight_differences.__getitem__)
        text = (
            f"{self.num_mini_batches} mini-batches trained in float64 against {self.reference}: largest difference "
            f"{self.loss_difference:.1e} in losses, {self.weight_differences[worst]:.1e} in weights"
        )
        if not self.agrees:
            raise RunError(f"gradients differ: {text} (stage {worst}), but at most {TOLERANCE:g} is rounding")
        return f"gradients agree: {text}"


def check_gradients(graph: TaskGraph, workers: str = "threads", *, timeout: float = 600.0) -> GradientCheck:
    """Train equal layers, one per stage, as the graph says, and compare losses and final weights.

    Raises RunError if a device is waited for longer than `timeout` seconds.
    """
    program = graph.program
    steps = max(STEPS, program.num_mini_batches) if program.weights.synchronous else program.num_mini_batches
    # whole repetitions of the program
    steps = -(-steps // program.num_mini_batches) * program.num_mini_batches
    samples = SAMPLES * program.num_micro_batches + 1
    run, before, data = _train(graph, workers, steps=steps, samples=samples, timeout=timeout)
    if program.weights.synchronous:
        reference, expected = "the unpartitioned model", train_unpartitioned(before, data, sgd=SGD)
    else:
        reference, expected = "a serial execution of the versions read", train_serially(graph, before, data, sgd=SGD)
    return _compare(reference, expected, run)


def _train(
    graph: TaskGraph, workers: str, *, steps: int, samples: int, timeout: float
) -> tuple[Run, list[Layers], list[tuple[Array, Array]]]:
    """Train, and return the run, the weights before it and the data, both as arrays."""
    from executor import Pipeline, train
    from executor.recipe.ready_made import mlp

    recipe = mlp(num_layers=graph.program.num_stages, width=WIDTH, mini_batch_size=samples)
    assert recipe.model is not None
    stages = list(recipe.model.double().children())
    before = [_layers(stage.state_dict()) for stage in stages]
    mini_batches = [(inputs.double(), targets.double()) for inputs, targets in islice(recipe.data(0), steps)]

    def optimizer(parameters: list[Any]) -> Any:
        made = recipe.optimizer(parameters)
        for group in made.param_groups:
            group.update(lr=SGD.rate, momentum=SGD.momentum)
        return made

    pipeline = Pipeline(stages, loss=recipe.loss, optimizer=optimizer)
    run = train(graph, pipeline, mini_batches, workers=workers, timeout=timeout)
    return run, before, [(inputs.numpy(), targets.numpy()) for inputs, targets in mini_batches]


def _layers(state: dict[str, Any]) -> Layers:
    """Return weights and biases of a stage's one layer as arrays of their own."""
    tensors = [tensor.detach().numpy().copy() for tensor in state.values()]
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _compare(reference: str, expected: SerialOutcome, run: Run) -> GradientCheck:
    state, differences = run.state_dict(), []
    for stage, layers in enumerate(expected.weights):
        found = _layers({key: value for key, value in state.items() if key.split(".")[0] == str(stage)})
        differences.append(max(_difference(*pair) for pair in zip(layers, found, strict=True)))
    losses = float(np.abs(np.array(run.losses) - np.array(expected.losses)).max())
    return GradientCheck(reference, len(expected.losses), losses, tuple(differences))


def _difference(one: Sequence[Array], other: Sequence[Array]) -> float:
    return max(float(np.abs(left - right).max()) for left, right in zip(one, other, strict=True))
