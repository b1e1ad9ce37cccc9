"""The steady state: what one mini-batch costs once the pipeline is full, without start-up and drain.

With T_n = last end of any task of mini-batch n, seconds_per_mini_batch = (T_b - T_a) / (b - a), where

    synchronous      a = 0        b = N - 1         needs N >= 2
    continuous       a = p - 1    b = N - p - 1     needs N >= 2p + 1; b is lowered until b - a is a multiple of every
                                                    replica count, so that whole rounds are compared
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.timeline.metrics.busy import idle_of
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Steady:
    """Figures of the steady state."""

    seconds_per_mini_batch: float
    """(T_b - T_a) / (b - a)."""
    bubble_fraction: float
    """1 - (busy seconds of all devices / N) / (devices x seconds_per_mini_batch)."""
    first_mini_batch: int
    """a."""
    last_mini_batch: int
    """b."""


def steady_range(graph: TaskGraph) -> tuple[int, int] | None:
    """Return (a, b), or None where the program has too few mini-batches."""
    program = graph.program
    p, n = program.num_devices, program.num_mini_batches
    if program.weights.synchronous:
        return (0, n - 1) if n >= 2 else None
    if n < 2 * p + 1:
        return None
    # replicas run the mini-batches of a round side by side, so these end unevenly: only whole rounds compare
    whole_rounds = math.lcm(*graph.round_size.tolist())
    length = (n - 2 * p) // whole_rounds * whole_rounds
    return (p - 1, p - 1 + length) if length else None


def steady_state(timeline: Timeline, busy_s: float) -> Steady | None:
    """Return the steady state of a run whose devices computed `busy_s` seconds in all; None where there is none."""
    found = steady_range(timeline.graph)
    if found is None:
        return None
    first, last = found
    # ends, since a mini-batch of a continuous schedule begins while those before it are still under way
    begin, end = mini_batch_end(timeline, first), mini_batch_end(timeline, last)
    if begin is None or end is None:
        return None
    seconds = (end - begin) / (last - first)
    program = timeline.graph.program
    # of a part of a run the first mini-batches are not recorded, so a share of all that is would be too little
    busy = _busy_between(timeline, begin, end) / (last - first) if _is_part(timeline) else busy_s / program.num_mini_batches
    bubble = idle_of(1.0, busy / (program.num_devices * seconds)) if seconds > 0 else 0.0
    return Steady(seconds, bubble, first, last)


def _is_part(timeline: Timeline) -> bool:
    """Tell whether forwards are missing: they are never left out of a whole run."""
    return bool(np.isnan(timeline.start[timeline.graph.kind == Kind.FORWARD]).any())


def _busy_between(timeline: Timeline, begin: float, end: float) -> float:
    """Return the seconds that all devices compute between two times."""
    compute = slice(0, timeline.graph.num_compute_tasks)
    spans = np.minimum(timeline.end[compute], end) - np.maximum(timeline.start[compute], begin)
    return float(np.nansum(np.maximum(spans, 0.0)))


def step_seconds(timeline: Timeline) -> float:
    """Return the seconds of one mini-batch, of the steady state where there is one: what rankings order by.

    The same number as `metrics(timeline).step_s` in a hundredth of the time, for planners.
    """
    steady = steady_state(timeline, 0.0)
    return timeline.makespan_s / timeline.graph.program.num_mini_batches if steady is None else steady.seconds_per_mini_batch


def mini_batch_end(timeline: Timeline, mini_batch: int) -> float | None:
    """Return the last end of a mini-batch's recorded tasks, None if none of them is recorded."""
    m = timeline.graph.program.num_micro_batches
    # an update stands for several mini-batches and has the number of its last member, so it counts to the last of them
    micro_batch = timeline.graph.micro_batch
    ends = timeline.end[(micro_batch >= mini_batch * m) & (micro_batch < (mini_batch + 1) * m)]
    ends = ends[~np.isnan(ends)]
    return float(ends.max()) if len(ends) else None
