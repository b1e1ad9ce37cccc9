"""What the benchmark of the executor computes from a timeline."""

import numpy as np
import pytest

from benchmarks.executor.paths import forward_seconds, gaps, longest_path_s, overhead
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Source, Timeline


def one_device(start: list[float], end: list[float]) -> Timeline:
    """0F0 0F1 0B1 0B0 0U1 on one device."""
    graph = compile_program(build_program("gpipe", num_devices=1, num_micro_batches=2))
    return Timeline(graph, np.array(start), np.array(end), Source.MEASURED)


def two_devices() -> TaskGraph:
    """0F0 0B0 0U0 and 1F0 1B0 1U0, with a transfer each way."""
    return compile_program(build_program("gpipe", num_devices=2, num_micro_batches=1))


def one_after_the_other() -> Timeline:
    """Tasks of 1 s, transfers of 0.25 s, updates of none, never two at once."""
    graph = two_devices()
    start, end = np.zeros(graph.num_tasks), np.zeros(graph.num_tasks)
    at = 0.0
    for task in graph.topology.order.tolist():
        start[task], at = at, at + {Kind.TRANSFER: 0.25, Kind.UPDATE: 0.0}.get(Kind(graph.kind[task]), 1.0)
        end[task] = at
    return Timeline(graph, start, end, Source.MEASURED)


def test_overhead_is_what_lies_between_the_tasks() -> None:
    # durations 1, 1, 2, 2, 1 s; 0.5 s between the last two
    fraction, per_task = overhead(one_device([0.0, 1.0, 2.0, 4.0, 6.5], [1.0, 2.0, 4.0, 6.0, 7.5]))

    assert fraction == pytest.approx(0.5 / 7.0)
    assert per_task == pytest.approx(0.5 / 5)


def test_a_hand_over_that_takes_time_is_overhead() -> None:
    fraction, _ = overhead(one_after_the_other())

    assert fraction == pytest.approx(2 * 0.25 / 4.0)


def test_transfers_are_free_on_the_longest_path() -> None:
    graph = two_devices()

    assert longest_path_s(graph, np.where(graph.kind == Kind.TRANSFER, np.nan, 1.0)) == 5.0  # F F B B U


def test_gaps_are_told_apart_by_what_came_last() -> None:
    found = gaps(one_after_the_other())

    assert found.own == pytest.approx([0.0, 0.0, 0.25])  # 0U0, 1B0, and 1U0 behind the transfer of 1B0
    assert found.handed == pytest.approx([0.25, 0.25])  # 1F0 behind 0F0, 0B0 behind 1B0


def test_the_forward_is_a_median() -> None:
    timeline = one_device([0.0, 1.0, 4.0, 5.0, 6.0], [1.0, 4.0, 5.0, 6.0, 7.0])

    assert forward_seconds(timeline.graph, timeline.end - timeline.start) == 2.0
