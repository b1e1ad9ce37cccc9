"""What the benchmark of the executor computes from a timeline."""

import numpy as np
import pytest

from benchmarks.executor import forward_seconds, overhead
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Source, Timeline


def one_device(start: list[float], end: list[float]) -> Timeline:
    """0F0 0F1 0B1 0B0 0U1 on one device."""
    graph = compile_program(build_program("gpipe", num_devices=1, num_micro_batches=2))
    return Timeline(graph, np.array(start), np.array(end), Source.MEASURED)


def test_overhead_is_what_lies_between_the_tasks() -> None:
    # durations 1, 1, 2, 2, 1 s; 0.5 s between the last two
    fraction, per_task = overhead(one_device([0.0, 1.0, 2.0, 4.0, 6.5], [1.0, 2.0, 4.0, 6.0, 7.5]))

    assert fraction == pytest.approx(0.5 / 7.0)
    assert per_task == pytest.approx(0.5 / 5)


def test_a_hand_over_that_takes_time_is_overhead() -> None:
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=1))
    start, end = np.zeros(graph.num_tasks), np.zeros(graph.num_tasks)
    at = 0.0
    for task in graph.topology.order.tolist():  # one after the other: tasks of 1 s, transfers of 0.25 s, updates of none
        start[task], at = at, at + {Kind.TRANSFER: 0.25, Kind.UPDATE: 0.0}.get(graph.kind[task], 1.0)
        end[task] = at

    fraction, _ = overhead(Timeline(graph, start, end, Source.MEASURED))

    assert fraction == pytest.approx(2 * 0.25 / 4.0)


def test_the_forward_is_a_median() -> None:
    assert forward_seconds(one_device([0.0, 1.0, 4.0, 5.0, 6.0], [1.0, 4.0, 5.0, 6.0, 7.0])) == 2.0
