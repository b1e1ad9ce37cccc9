"""Timelines to draw: schedules evaluated in order, with durations that a test gives."""

from dataclasses import replace
from typing import Any

import numpy as np

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import MemorySteps, Source, Timeline


def predicted(name: str, devices: int, micro_batches: int, *, mini_batches: int | None = None, **costs: Any) -> Timeline:
    """Build, compile and evaluate a schedule; `recompute_mode` goes to the compiler, the rest to UniformCosts."""
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=mini_batches)
    return of_program(program, **costs)


def of_program(program: Program, *, recompute_mode: str = "never", recompute_start: str = "early", **costs: Any) -> Timeline:
    graph = compile_program(program, recompute=recompute_mode, recompute_start=recompute_start)
    spans = evaluate(graph, UniformCosts(**costs).times(graph))
    return Timeline(graph, spans.start, spans.end, Source.SIMULATED, release=spans.release)


def measured(like: Timeline, *, jitter: float = 0.05, begin: float = 0.0) -> Timeline:
    """Return a run of the same graph whose durations vary by `jitter`, with a clock that starts at `begin`."""
    graph = like.graph
    noise = np.random.default_rng(7).lognormal(0.0, jitter, graph.num_tasks)
    spans = evaluate(graph, TaskTimes((like.end - like.start) * noise))
    return Timeline(graph, spans.start + begin, spans.end + begin, Source.MEASURED)


def with_memory(timeline: Timeline, levels: list[int], limit: list[int] | None = None) -> Timeline:
    """Let device d hold `levels[d]` bytes of activations in the first half of the run and half of it in the second."""
    half = timeline.makespan_s / 2
    steps = []
    for level in levels:
        by_class = np.zeros((2, 8), np.int64)
        by_class[:, 4] = (level, level // 2)
        steps.append(MemorySteps(np.array([0.0, half]), by_class))
    return replace(timeline, memory=tuple(steps), meta={} if limit is None else {"limit_bytes": limit})
