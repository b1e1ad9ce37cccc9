"""Run a graph on emulated devices: every task sleeps its cost. Shows what threads and clocks alone add to a prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import sleep
from typing import Any

import numpy as np

from executor.plan.actions import PlannedAction
from executor.plan.local import LOCAL
from executor.plan.plan import make_plan
from executor.plan.reductions import PlannedReduction
from executor.run.clock import Recorder
from executor.run.runner import Body, Runner
from executor.workers.emulated import EmulatedWorkers
from schedir.costs.model import CostModel
from schedir.expect import expect
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from schedir.timeline.timeline import Source, Timeline

GRACE_S = 60.0
"""How much longer than the sum of all costs anybody waits."""


def emulate(graph: TaskGraph, costs: CostModel) -> Timeline:
    """Sleep through a graph, one thread per device, and measure it. Costs are seconds. Needs no torch.

    Transfers occupy their link for their duration and arrive after their latency. Raises ArgumentError if the costs do not
    fit the graph.
    """
    expect(graph, TaskGraph, "graph", remedy="give what compile_program returns")
    expect(costs, CostModel, "costs", remedy="give UniformCosts, TableCosts or what load_costs returns")
    times = costs.times(graph)
    plan, recorder = make_plan(graph), Recorder(graph.num_tasks)
    # nobody waits longer than for all tasks one after the other
    workers = EmulatedWorkers(graph, times, recorder, timeout_s=GRACE_S + float(times.duration.sum()))
    try:
        Runner(graph, plan, SleepingCrew(times), workers=workers, recorder=recorder).run_once()
    finally:
        workers.close()
    start, end = recorder.spans()
    release = np.where(graph.kind == Kind.TRANSFER, start + times.duration, end)  # a link is free before the value has arrived
    meta = {"workers": "emulated", "warm_up": False, "clock": 0.0, "costs": dict(costs.describe(graph))}
    return Timeline(graph, start, end, Source.MEASURED, release=release, meta=meta)


class SleepingCrew:
    """What tasks do on emulated devices."""

    def __init__(self, times: TaskTimes) -> None:
        self._duration = times.duration.tolist()

    def body(self, action: PlannedAction) -> Body:
        """Return what sleeps the task's cost; of an overlapped pair the first half sleeps for both."""
        return partial(_sleep, 0.0 if action.half else self._duration[action.task])

    def share(self, reduction: PlannedReduction, number: int) -> Callable[[], Any]:  # noqa: ARG002 - one signature for all
        """Return what gives nothing."""
        return _nothing

    def total(self, reduction: PlannedReduction) -> Callable[[Sequence[Any]], Any]:
        """Return what sleeps the reduction's cost."""
        return partial(_sleep, 0.0 if reduction.task == LOCAL else self._duration[reduction.task])


def _sleep(seconds: float, *received: object) -> None:  # noqa: ARG001 - nothing is done with it
    if seconds > 0:
        sleep(seconds)


def _nothing() -> None:
    return None
