"""The longest-path pass: known spans of papers and of the known problems. That all its ways agree is a law (tests/test_laws.py)."""

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.schedules.registry import build_program
from tests.programs import makespan, spans, written


# GPipe (Huang et al. 2019), section 2.3: (m + p - 1)(F + B); 1F1B with a flush takes as long.
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 8])
def test_equal_stages_take_m_plus_p_minus_one_slots(name: str, devices: int, micro_batches: int) -> None:
    graph = compile_program(build_program(name, num_devices=devices, num_micro_batches=micro_batches))

    assert makespan(graph) == 3 * (micro_batches + devices - 1)


# Known problem D1: 4 devices, 2 micro-batches end at 15, one at 12.
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_fewer_micro_batches_than_stages_end(name: str) -> None:
    assert makespan(compile_program(build_program(name, num_devices=4, num_micro_batches=2))) == 15
    assert makespan(compile_program(build_program(name, num_devices=4, num_micro_batches=1))) == 12


# Known problem D30: stage 2 of 4 twice slower, m = 8.
@pytest.mark.parametrize(("name", "seconds"), [("1f1b", 55), ("gpipe", 57)])
def test_unequal_stages(name: str, seconds: float) -> None:
    graph = compile_program(build_program(name, num_devices=4, num_micro_batches=8))
    slower = np.where(graph.stage == 2, 2.0, 1.0)
    work = np.select([graph.kind == Kind.FORWARD, graph.kind == Kind.BACKWARD], [1.0, 2.0], 0.0)

    assert evaluate(graph, TaskTimes(work * slower)).end.max() == seconds


# Known problem D30: a stage that costs nothing.
def test_a_stage_of_cost_zero() -> None:
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=4))
    work = np.select([graph.kind == Kind.FORWARD, graph.kind == Kind.BACKWARD], [1.0, 2.0], 0.0)

    assert evaluate(graph, TaskTimes(np.where(graph.stage == 1, 0.0, work))).end.max() == 15


# Known problem D25: 0.1 more for each action makes 33 + 22 * 0.1 of 1F1B on 4 devices with 8 micro-batches.
def test_a_dispatch_gap_stands_before_every_task_that_takes_time() -> None:
    graph = compile_program(build_program("1f1b", num_devices=4, num_micro_batches=8))
    work = np.select([graph.kind == Kind.FORWARD, graph.kind == Kind.BACKWARD], [1.0, 2.0], 0.0)
    found = evaluate(graph, TaskTimes(work, gap=0.1))
    last = max(found.end[task] for task in range(graph.num_compute_tasks) if graph.kind[task] == Kind.BACKWARD)

    assert last == pytest.approx(35.2)


def test_latency_delays_what_waits_but_not_the_link() -> None:
    """F 0..1 and 1..2 on device 0 arrive at 1.5 and 2.5; B of 1 arrives at 5.5."""
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=2))
    found = spans(graph, transfer=0.5)
    times = {graph.label(task): (found.start[task], found.end[task]) for task in range(graph.num_compute_tasks)}

    assert [times[name] for name in ("1F0", "1F1", "1B1", "1B0")] == [(1.5, 2.5), (2.5, 3.5), (3.5, 5.5), (5.5, 7.5)]
    assert [times[name] for name in ("0B1", "0B0")] == [(6.0, 8.0), (8.0, 10.0)]


def test_a_busy_link_delays_the_next_transfer() -> None:
    """Each transfer occupies its link for 3: the second forward leaves when the first has gone."""
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=2))
    duration = np.select([graph.kind == Kind.FORWARD, graph.kind == Kind.TRANSFER], [1.0, 3.0], 0.0)
    found = evaluate(graph, TaskTimes(duration))
    starts = {graph.label(task): found.start[task] for task in range(graph.num_tasks)}

    assert (starts["0T0"], starts["0T1"], starts["1F0"], starts["1F1"]) == (1, 4, 4, 7)


def test_updates_wait_for_a_reduction_that_takes_time() -> None:
    """F = 1, B = 2, m = 1: the stages of a tie have their gradients at 4 and 6, sum them until 11, and again from 17 to 22."""
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=1, num_mini_batches=2), ties=[(0, 1)])
    seconds = {Kind.FORWARD: 1.0, Kind.BACKWARD: 2.0, Kind.REDUCE: 5.0}
    found = evaluate(graph, TaskTimes(np.array([seconds.get(kind, 0.0) for kind in Kind])[graph.kind]))
    times = {graph.label(task): (found.start[task], found.end[task]) for task in range(graph.num_compute_tasks)}
    reductions = np.flatnonzero(graph.kind == Kind.REDUCE)

    assert (found.start[reductions].tolist(), found.end[reductions].tolist()) == ([6, 17], [11, 22])
    assert (times["0U0"], times["1U0"], times["0F1"], times["1U1"]) == ((11, 11), (11, 11), (11, 12), (22, 22))


def test_an_overlapped_pair_has_a_duration_of_its_own() -> None:
    graph = compile_program(written("0F0 (0F1;0B0)OVERLAP_F_B 0B1", m=2))

    assert makespan(graph, overlapped=2.5) == 1 + 2.5 + 2


def test_two_directions_on_two_devices() -> None:
    """Both micro-batches run at once, one down, one up: F F B B without a gap."""
    assert makespan(compile_program(written("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1", m=2, stages=2))) == 6
