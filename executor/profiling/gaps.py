"""The dispatch gap of a measured run: what passes between a task's being ready and its start.

before it in the lane   [=====]
what it consumes    [========]                 ready = the later end
the task itself               ··[=====]        gap = its start - ready: queue, wake-up, the interpreter's own steps
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schedir.timeline.timeline import Timeline

OUTLIERS = 0.02
"""The largest gaps, this share, tell of a core taken away and are left out of the mean."""


def dispatch_gap(timeline: Timeline, first_task_of: int = 0) -> float:
    """Return the mean gap in seconds before the compute tasks of the mini-batches from `first_task_of` on."""
    gaps = dispatch_gaps(timeline)
    graph = timeline.graph
    chosen = np.sort(gaps[graph.mini_batch[: graph.num_compute_tasks] >= first_task_of])
    kept = chosen[: max(1, int(len(chosen) * (1.0 - OUTLIERS)))]
    return max(0.0, float(kept.mean())) if len(chosen) else 0.0


def dispatch_gaps(timeline: Timeline) -> NDArray[np.float64]:
    """Return the gap before every compute task, float64 (num_compute_tasks); 0 before a device's first."""
    graph, end = timeline.graph, timeline.end
    count = graph.num_compute_tasks
    ready = np.full(graph.num_tasks, -np.inf)
    # all but the heads of lanes wait for the task before them, too
    followers = np.setdiff1d(np.arange(graph.num_tasks), graph.lane_start[:-1])
    ready[followers] = end[followers - 1]
    targets = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    np.maximum.at(ready, targets, end[graph.edge_source])
    gaps = timeline.start[:count] - ready[:count]
    return np.where(np.isfinite(gaps), gaps, 0.0)
