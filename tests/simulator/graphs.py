"""Hypothesis strategies: graphs of all registered schedules, and random times for them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.errors import SchedirError
from schedir.ir.graph import TaskGraph
from schedir.ir.in_order import TaskTimes
from schedir.schedules.registry import SCHEDULES, build_program

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "gpipe": [{}, {"order": "fifo"}],
    "pipedream": [{}, {"weights": "vertical-sync"}, {"weights": "current"}, {"replicas": True}],
    "xpipe": [{}, {"horizon": "exact"}, {"horizon": 2, "backward_weights": "stash"}],
}


@st.composite
def compiled_graphs(draw: st.DrawFn, names: tuple[str, ...] = tuple(SCHEDULES)) -> TaskGraph:
    """Draw a schedule, a shape that it accepts, options and a way of recomputation; compile them."""
    name = draw(st.sampled_from(names))
    devices, micro_batches = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    options = dict(draw(st.sampled_from(OPTIONS.get(name, [{}]))))
    if options.get("replicas"):
        options["replicas"] = (devices,) if devices < 3 else (devices - 1, 1)
    try:
        program = build_program(
            name,
            num_devices=devices,
            num_micro_batches=micro_batches,
            num_mini_batches=draw(st.integers(devices, 2 * devices + 2)) if SCHEDULES[name].continuous else draw(st.integers(1, 3)),
            **options,
        )
        return compile_program(
            program,
            recompute=draw(st.sampled_from(("never", "except-last", "always"))),
            recompute_start=draw(st.sampled_from(("early", "on-gradient"))),
        )
    except SchedirError:  # a shape that the schedule refuses
        from hypothesis import reject

        reject()


def random_times(graph: TaskGraph, seed: int) -> TaskTimes:
    """Return durations (some 0), latencies of transfers and a dispatch gap, all with full mantissas."""
    rng = np.random.default_rng(seed)
    duration = rng.random(graph.num_tasks) * rng.choice((0.0, 1.0, 1000.0), graph.num_tasks, p=(0.1, 0.8, 0.1))
    latency = np.where(np.arange(graph.num_tasks) >= graph.num_compute_tasks, rng.random(graph.num_tasks), 0.0)
    return TaskTimes(duration, latency if rng.random() < 0.7 else None, float(rng.choice((0.0, rng.random()))))
