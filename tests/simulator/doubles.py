"""Costs with bytes, random times, and graphs for tests of the simulator."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from schedir.compiler import compile_program
from schedir.costs.model import UnitBytes
from schedir.costs.uniform import UniformCosts
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from schedir.schedules.registry import build_program

BYTES = (
    *("weights", "gradients", "optimizer", "activations", "boundary", "recomputed", "output", "input_gradient", "workspace"),
    *("freed_activations", "freed_boundary", "freed_recomputed"),
)


def graph_of(name: str, devices: int, micro_batches: int, *, mini_batches: int | None = None, **options: Any) -> TaskGraph:
    """Compile a named schedule; `recompute` and `recompute_start` go to the compiler, other options to the schedule."""
    lowering = {key: options.pop(key) for key in ("recompute", "recompute_start") if key in options}
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=mini_batches, **options)
    return compile_program(program, **lowering)


def random_times(graph: TaskGraph, seed: int) -> TaskTimes:
    """Return durations (some 0), latencies of transfers and a dispatch gap, all with full mantissas."""
    rng = np.random.default_rng(seed)
    duration = rng.random(graph.num_tasks) * rng.choice((0.0, 1.0, 1000.0), graph.num_tasks, p=(0.1, 0.8, 0.1))
    latency = np.where(np.arange(graph.num_tasks) >= graph.num_compute_tasks, rng.random(graph.num_tasks), 0.0)
    return TaskTimes(duration, latency if rng.random() < 0.7 else None, float(rng.choice((0.0, rng.random()))))


def unit_bytes(num_stages: int, scale: Sequence[float] | None = None, **given: float) -> UnitBytes:
    """Return bytes per unit, the same for every stage; 0 where not given."""
    columns = {name: np.full(num_stages, float(given.get(name, 0))) for name in BYTES}
    return UnitBytes(**columns, micro_batch_scale=None if scale is None else np.array(scale))


class CostsWithBytes:
    """Uniform times and these bytes."""

    def __init__(self, times: UniformCosts | None = None, **given: Any) -> None:
        self._times, self._given = times or UniformCosts(), given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._times, name)

    def unit_bytes(self, graph: TaskGraph) -> UnitBytes:
        return unit_bytes(graph.program.num_stages, **self._given)
