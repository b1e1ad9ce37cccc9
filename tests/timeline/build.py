"""Timelines for tests: schedules on unit costs through the longest-path pass, and runs recorded by hand."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Source, Timeline
from tests.programs import accepted_shape

UNITS = {
    Kind.FORWARD: 1.0,
    Kind.BACKWARD: 2.0,
    Kind.INPUT_GRAD: 1.0,
    Kind.WEIGHT_GRAD: 1.0,
    Kind.OVERLAPPED: 3.0,
    Kind.RECOMPUTE: 1.0,
}
"""F = 1, B = 2 = I + W, R = F; updates, predictions, transfers and reductions take no time."""


def graph_of(
    name: str, devices: int, micro_batches: int, *, recompute: str = "never", start: str = "early", **shape: Any
) -> TaskGraph:
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, **shape)
    return compile_program(program, recompute=recompute, recompute_start=start)


def graph_near(name: str, devices: int, micro_batches: int, **options: Any) -> TaskGraph:
    """Compile a schedule for this shape, or for one near it that the schedule accepts."""
    return graph_of(name, *accepted_shape(name, devices, micro_batches), **options)


def run(
    graph: TaskGraph,
    seconds: Mapping[Kind, float] | None = None,
    *,
    latency: float = 0.0,
    slower: Mapping[int, float] | None = None,
    gap: float = 0.0,
    **meta: Any,
) -> Timeline:
    """Predict a timeline: seconds by kind (UNITS otherwise), latency of transfers, factors by stage, gap before tasks."""
    units = UNITS | dict(seconds or {})
    duration = np.array([units.get(Kind(kind), 0.0) for kind in graph.kind.tolist()])
    for stage, factor in (slower or {}).items():
        duration[(graph.stage == stage) & (graph.kind != Kind.TRANSFER)] *= factor
    spans = evaluate(graph, TaskTimes(duration, np.where(graph.kind == Kind.TRANSFER, latency, 0.0), gap))
    return Timeline(graph, spans.start, spans.end, Source.SIMULATED, spans.release, meta={"engine": "in-order"} | meta)


def noisy(graph: TaskGraph, seed: int, **meta: Any) -> Timeline:
    """Predict a timeline of random durations and latencies for every kind of task."""
    rng = np.random.default_rng(seed)
    duration = rng.uniform(0.5, 1.5, graph.num_tasks) * 1e-3
    spans = evaluate(graph, TaskTimes(duration, np.where(graph.kind == Kind.TRANSFER, 3e-4, 0.0)))
    return Timeline(graph, spans.start, spans.end, Source.SIMULATED, spans.release, meta=meta)


def recorded(graph: TaskGraph, spans: Mapping[str, tuple[float, float]], **meta: Any) -> Timeline:
    """Return a measured timeline with spans by label (`0F0`); all other tasks are not recorded."""
    start, end = np.full(graph.num_tasks, np.nan), np.full(graph.num_tasks, np.nan)
    labels = {graph.label(task): task for task in range(graph.num_compute_tasks)}
    for label, (begin, finish) in spans.items():
        start[labels[label]], end[labels[label]] = begin, finish
    return Timeline(graph, start, end, Source.MEASURED, meta=meta)


def two_devices_by_hand(**meta: Any) -> Timeline:
    """Return the measured run of known problem D27: device 0 is busy in [0, 4] and [6, 8], device 1 in [4, 6]."""
    spans = {"0F0": (0.0, 4.0), "1F0": (4.0, 5.0), "1B0": (5.0, 6.0), "0B0": (6.0, 8.0)}
    return recorded(graph_of("1f1b", 2, 1), spans, **meta)
