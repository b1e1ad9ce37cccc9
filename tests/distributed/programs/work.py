"""What the processes of these tests do, and the same done by threads. Everything here is called by name in processes of its own."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from executor.training import Run, train
from schedir.compiler import compile_program
from schedir.ir.graph import TaskGraph
from tests.executor.serial import scalar_cases
from tests.executor.small.models import batches, compiled, mlp, pipeline_of
from tests.late_halves import late_halves

TIMEOUT_S = 120.0
"""Nobody needs so long for a task, on however busy a machine; a hang ends by it."""
LAUNCH_S = 600.0
"""The same of a launch, whatever its processes do; one that hangs ends by it."""


@dataclass
class Found:
    """What one process knows of a run: plain values."""

    losses: list[float]
    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    reads: list[list[int]]
    start: list[float]
    end: list[float]
    meta: dict[str, Any]

    @classmethod
    def of(cls, run: Run) -> "Found":
        reads, timeline = run.reads, run.timelines[-1]
        return cls(
            losses=run.losses,
            weights=dict(run.state_dict()),
            gradients=dict(run.gradients),
            reads=[x.tolist() for x in (reads.version, reads.horizon, reads.pair_version, reads.pair_horizon)],
            start=timeline.start.tolist(),
            end=timeline.end.tolist(),
            meta=dict(timeline.meta),
        )


Setup = tuple[str, int, int, dict[str, Any]]
"""(schedule, devices, micro-batches, options)."""

OWN = {"late-halves": late_halves}
"""Programs that are no schedule of the table, made for a number of devices."""


def graph_of(setup: Setup) -> TaskGraph:
    name, devices, micro_batches, options = setup
    return compile_program(OWN[name](devices)) if name in OWN else compiled(name, devices, micro_batches, **options)


def trained(setup: Setup, workers: str) -> Found:
    """Train small stages in float64 on two passes of a synchronous graph, one of a continuous one."""
    graph = graph_of(setup)
    count = graph.program.num_mini_batches * (2 if graph.program.weights.synchronous else 1)
    data = batches(count, samples=setup[2] + 1)
    return Found.of(train(graph, pipeline_of(mlp(graph.program.num_stages)), data, workers=workers, timeout=TIMEOUT_S))


def all_trained(setups: list[Setup], workers: str = "distributed") -> list[Found]:
    return [trained(setup, workers) for setup in setups]


def scalar_case(name: str) -> tuple[list[float], list[float]]:
    """Train a case in these processes; return losses and final weights."""
    case = scalar_cases.load(name)
    run = case.train()
    return run.losses, case.final_weights()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key].to_dense(), other[key].to_dense()) for key in one)
