from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from executor.profiling.rehearsal import take_apart
from executor.profiling.samples import Rehearsal, noise_floor, preempted_fraction, work_times
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program


def rehearse(graph: TaskGraph, wall: dict[str, float], *, stolen: dict[str, float] | None = None, warm_up: int = 0) -> Rehearsal:
    """Return a rehearsal in which each labelled task takes so many CPU seconds, 1 if not named, plus what was stolen."""
    labels = [graph.label(task) for task in range(graph.num_compute_tasks)]
    cpu = np.array([wall.get(label, 1.0) for label in labels])
    return Rehearsal(graph, cpu + np.array([(stolen or {}).get(label, 0.0) for label in labels]), cpu, warm_up)


def one_device(*, num_micro_batches: int = 3, num_mini_batches: int = 1, parts: int = 1) -> TaskGraph:
    shape = {"num_devices": 1, "num_micro_batches": num_micro_batches, "num_mini_batches": num_mini_batches}
    return compile_program(take_apart(build_program("gpipe", **shape), (parts,)))


def test_the_first_forward_of_a_mini_batch_stands_apart() -> None:
    (time,) = work_times(rehearse(one_device(), {"0F0": 9.0, "0F1": 5.0, "0F2": 6.0}), Kind.FORWARD, [0])
    assert time is not None
    assert (time.first, time.samples, time.median) == (9.0, (5.0, 6.0), 5.5)


def test_the_first_backward_is_the_first_that_runs() -> None:
    # gpipe runs backwards in reverse order
    (time,) = work_times(rehearse(one_device(), {"0B2": 9.0, "0B0": 2.0}), Kind.BACKWARD, [0])
    assert time is not None
    assert (time.first, time.samples) == (9.0, (2.0, 1.0))


def test_with_one_micro_batch_no_task_stands_apart() -> None:
    (time,) = work_times(rehearse(one_device(num_micro_batches=1, num_mini_batches=2), {"0F0": 3.0}), Kind.FORWARD, [0])
    assert time is not None
    assert (time.first, time.samples) == (None, (3.0, 1.0))


def test_updates_have_no_first() -> None:
    (time,) = work_times(rehearse(one_device(num_mini_batches=2), {"0U2": 3.0}), Kind.UPDATE, [0])
    assert time is not None
    assert (time.first, time.samples) == (None, (3.0, 1.0))


def test_warm_up_is_left_out() -> None:
    times = {"0F1": 50.0, "0F2": 50.0, "0F4": 4.0, "0F5": 5.0}
    (time,) = work_times(rehearse(one_device(num_mini_batches=2), times, warm_up=1), Kind.FORWARD, [0])
    assert time is not None
    assert time.samples == (4.0, 5.0)


def test_samples_know_the_mini_batch_that_they_were_measured_in() -> None:
    graph = one_device(num_mini_batches=3)
    forward, update = (
        work_times(rehearse(graph, {}, stolen={"0F5": 1.0}, warm_up=1), kind, [0])[0] for kind in (Kind.FORWARD, Kind.UPDATE)
    )
    assert forward is not None
    assert update is not None
    assert (len(forward.samples), forward.repeats) == (3, (0, 1, 1))  # of mini-batches 1 and 2; 0F5 was preempted
    assert update.repeats == (0, 1)


def test_a_kind_that_did_not_run_has_no_time() -> None:
    assert work_times(rehearse(one_device(), {}), Kind.RECOMPUTE, [0]) == (None,)


@pytest.mark.parametrize(("stolen", "samples"), [(0.19, (1.0, 1.19, 1.0, 1.0)), (0.21, (1.0, 1.0, 1.0))])
def test_a_preempted_sample_is_dropped(stolen: float, samples: tuple[float, ...]) -> None:
    rehearsal = rehearse(one_device(num_micro_batches=5), {}, stolen={"0F2": stolen})
    (time,) = work_times(rehearsal, Kind.FORWARD, [0])
    assert time is not None
    assert time.samples == pytest.approx(samples)
    assert preempted_fraction(rehearsal, [[0]]) == pytest.approx(0.1 * (len(samples) < 4))  # of 5 forwards and 5 backwards


def test_on_cores_of_their_own_tasks_take_their_cpu_time_and_nothing_waits() -> None:
    rehearsal = rehearse(one_device(num_micro_batches=5), {"0F3": 2.0}, stolen={"0F2": 9.0})
    alone = replace(rehearsal, dispatch_gap_s=0.5).on_own_cores()
    (time,) = work_times(alone, Kind.FORWARD, [0])
    assert time is not None
    assert time.samples == (1.0, 1.0, 2.0, 1.0)
    assert (preempted_fraction(alone, [[0]]), alone.dispatch_gap_s) == (0.0, 0.0)


def test_samples_of_a_stages_layers_are_dropped_together() -> None:
    rehearsal = rehearse(one_device(num_micro_batches=5, parts=2), {"0F4": 7.0, "1F4": 70.0}, stolen={"1F2": 9.0})
    first, second = work_times(rehearsal, Kind.FORWARD, [0, 1])
    assert first is not None
    assert second is not None
    assert (first.samples, second.samples) == ((1.0, 1.0, 7.0), (1.0, 1.0, 70.0))


def test_where_a_quarter_or_less_is_preempted_those_are_dropped() -> None:
    (time,) = work_times(rehearse(one_device(num_micro_batches=5), {}, stolen={"0F2": 1.0}), Kind.FORWARD, [0])
    assert time is not None
    assert time.samples == (1.0, 1.0, 1.0)


def test_on_a_machine_that_is_never_free_nothing_is_dropped() -> None:
    rehearsal = rehearse(one_device(num_micro_batches=5), {}, stolen={"0F2": 1.0, "0F3": 2.0})
    (time,) = work_times(rehearsal, Kind.FORWARD, [0])
    assert time is not None
    assert time.samples == (1.0, 2.0, 3.0, 1.0)
    assert preempted_fraction(rehearsal, [[0]]) == pytest.approx(0.2)


def test_the_first_of_a_mini_batch_is_dropped_by_itself() -> None:
    rehearsal = rehearse(one_device(num_mini_batches=5), {"0F3": 4.0}, stolen={"0F0": 50.0})
    (time,) = work_times(rehearsal, Kind.FORWARD, [0])
    assert time is not None
    assert (time.first, len(time.samples)) == (1.0, 10)


def test_the_noise_floor_is_the_difference_of_the_two_halves() -> None:
    # forward + backward is 2 s in mini-batch 0 and 3 s in mini-batch 1: 1 s apart, of 2.5 s
    slow = {f"0B{j}": 2.0 for j in (3, 4, 5)}
    assert noise_floor(rehearse(one_device(num_mini_batches=2), slow), [[0]]) == pytest.approx(0.4)
    assert noise_floor(rehearse(one_device(num_mini_batches=1), {}), [[0]]) == 0.0
