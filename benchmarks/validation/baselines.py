"""The baseline that is made of a prediction itself: what it would have been if nothing took time between devices."""

from __future__ import annotations

import numpy as np

from benchmarks.validation.causes import constant_gap
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Source, Timeline


def without_communication(predicted: Timeline) -> float:
    """Return the seconds of a step if transfers and reductions took no time, all else as predicted.

    A ratio of two runs of the graph, since spans do not say all that a prediction knew, as latencies behind its links.
    """
    graph, taken = predicted.graph, predicted.end - predicted.start
    alone = np.where(np.arange(graph.num_tasks) < graph.num_compute_tasks, taken, 0.0)
    gap = constant_gap(predicted)
    steps = []
    for duration in (taken, alone):
        spans = evaluate(graph, TaskTimes(duration, None, gap))
        steps.append(step_seconds(Timeline(graph, spans.start, spans.end, Source.SIMULATED)))
    return step_seconds(predicted) * steps[1] / steps[0]
