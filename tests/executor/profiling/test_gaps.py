from __future__ import annotations

import numpy as np
import pytest

from executor.profiling.gaps import dispatch_gap, dispatch_gaps
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Source, Timeline


def measured(late: dict[str, float], *, transfer: float = 0.0) -> Timeline:
    """Lay out 1f1b on two devices, F and B of 1 s, every task starting as late after its being ready as is said."""
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2))
    start, end = np.zeros(graph.num_tasks), np.zeros(graph.num_tasks)
    for task in graph.topology.order.tolist():
        compute = task < graph.num_compute_tasks
        waits = [end[source] for source in graph.sources(task)]
        lane = graph.lane_range(int(graph.lane[task]))
        ready = max([end[task - 1] if task > lane.start else 0.0, *waits])
        start[task] = ready + (late.get(graph.label(task), 0.0) if compute else 0.0)
        end[task] = start[task] + ((graph.kind[task] != Kind.UPDATE) if compute else transfer)
    return Timeline(graph, start, end, Source.MEASURED)


def gaps(timeline: Timeline) -> dict[str, float]:
    found = dispatch_gaps(timeline)
    return {timeline.graph.label(task): float(gap) for task, gap in enumerate(found) if gap > 1e-12}


def test_a_run_without_delays_has_no_gaps() -> None:
    assert gaps(measured({}, transfer=0.5)) == {}


def test_the_gap_is_what_passes_after_the_last_thing_waited_for() -> None:
    assert gaps(measured({"0F1": 0.25, "1B0": 0.5}, transfer=0.5)) == pytest.approx({"0F1": 0.25, "1B0": 0.5})


def test_waiting_for_others_is_no_gap() -> None:
    # 1F0 waits for 0F0 and its transfer, 0B0 for 1B0
    assert gaps(measured({"0F0": 0.0}, transfer=3.0)) == {}


def test_the_mean_is_over_all_compute_tasks() -> None:
    timeline = measured({"0F1": 0.2, "1B0": 0.3})
    # 10 tasks: 4 F, 4 B, 2 U; the largest, a fiftieth of them rounded up, is left out
    assert timeline.graph.num_compute_tasks == 10
    assert dispatch_gap(timeline) == pytest.approx(0.2 / 9)
