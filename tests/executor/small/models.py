"""Small models, data and references for the executor's tests."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from executor.model.pipeline import Pipeline
from schedir.compiler import compile_program
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Timeline

WIDTH = 4

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def sgd(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def mlp(num_stages: int, *, seed: int = 0) -> list[nn.Module]:
    """Stages of Linear and Tanh, in float64; two layers each, so that cuts lie between layers of one kind."""
    torch.manual_seed(seed)
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(num_stages))
    return [stage.double() for stage in layers]


def layers_of(stages: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the layers of all stages in a row."""
    return [layer for stage in stages for layer in stage.children()]


def batches(count: int, *, samples: int = 8, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    shape = (samples, WIDTH)
    return [
        tuple(torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))  # type: ignore[misc]  # two of them
        for _ in range(count)
    ]


def compiled(name: str, num_devices: int, num_micro_batches: int, **options: object) -> TaskGraph:
    """Compile a named schedule; `recompute` and `recompute_start` go to the compiler."""
    lowering = {key: options.pop(key) for key in ("recompute", "recompute_start") if key in options}
    program = build_program(name, num_devices=num_devices, num_micro_batches=num_micro_batches, **options)  # type: ignore[arg-type]  # options of any type
    return compile_program(program, **lowering)  # type: ignore[arg-type]  # so here


def pipeline_of(stages: nn.Sequential | Sequence[nn.Module], *, optimizer: MakeOptimizer = sgd, **options: object) -> Pipeline:
    return Pipeline(stages, loss=nn.functional.mse_loss, optimizer=optimizer, **options)  # type: ignore[arg-type]  # options of any type


def reference(
    stages: Sequence[nn.Module], data: Sequence[tuple[Tensor, Tensor]], optimizer: MakeOptimizer = sgd
) -> tuple[list[float], dict[str, Tensor]]:
    """Train the unpartitioned model as one does without pipelines; return losses and the last gradients."""
    model = nn.Sequential(*stages)
    steps = optimizer(list(model.parameters()))
    losses = []
    for inputs, target in data:
        steps.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), target)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_dependencies_kept(timeline: Timeline) -> None:
    """Every task starts behind all that it waits for; only transfers of one link may overlap on their way."""
    graph = timeline.graph
    source, target, _ = graph.edges()
    same_link = (graph.lane[source] == graph.lane[target]) & (target >= graph.num_compute_tasks)
    kept = timeline.start[target] >= timeline.end[source]
    late = np.flatnonzero(~kept & ~same_link)
    assert [f"{graph.label(target[edge])} before {graph.label(source[edge])}" for edge in late] == []
