from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.order.in_order import evaluate
from schedir.lowering.sharing import share_devices
from schedir.schedules.registry import build_program
from tests.programs import written
from tests.strategies import Build, builds


def text_of(orders: object) -> list[str]:
    return [" ".join(map(str, order)) for order in orders]  # type: ignore[attr-defined]  # a sequence of orders


def test_two_devices_take_turns_on_one() -> None:
    """1F1B, p = m = 2, F = 1, B = 2: device 0 starts at 0, 1, 4, 7 and device 1 at 1, 2, 4, 5; on one, device 0 goes first."""
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2))
    (order,) = text_of(share_devices(graph, 1).orders())
    assert order == "0F0 0F1 1F0 1B0 0B0 1F1 1B1 0B1"


def test_neighbours_share() -> None:
    graph = compile_program(build_program("gpipe", num_devices=5, num_micro_batches=2))
    shared = compile_program(share_devices(graph, 2))
    assert shared.stage_devices() == ((0,), (0,), (0,), (1,), (1,))


def test_a_device_of_ones_own_changes_nothing() -> None:
    graph = compile_program(build_program("zb-h1", num_devices=3, num_micro_batches=4))
    assert share_devices(graph, 3) is graph.program
    assert share_devices(graph, 8) is graph.program


def test_both_copies_of_a_stage_add_up_on_one_device() -> None:
    graph = compile_program(build_program("chimera", num_devices=2, num_micro_batches=4))
    shared = compile_program(share_devices(graph, 1))
    assert shared.stage_devices() == ((0,), (0,))
    assert shared.num_tasks == shared.num_compute_tasks  # no transfers, no reductions


@given(builds(most_tasks=200))
def test_on_one_device_everything_takes_the_sum_and_reads_the_same_weights(build: Build) -> None:
    graph = compile_program(build.program())
    if not graph.program.weights.synchronous and any(len(devices) > 1 for devices in graph.stage_devices()):
        return
    shared = compile_program(share_devices(graph, 1))
    costs = UniformCosts()
    times = costs.times(shared)
    assert evaluate(shared, times).end.max() == pytest.approx(times.duration.sum())
    if graph.program.weights.synchronous:
        return
    reads = [
        {
            (int(one.kind[task]), int(one.stage[task]), int(one.micro_batch[task])): int(one.version[task])
            for task in range(one.num_compute_tasks)
        }
        for one in (graph, shared)
    ]
    assert reads[0] == reads[1]


def test_replicas_that_would_share_a_device_are_refused() -> None:
    graph = compile_program(build_program("pipedream", num_devices=3, num_micro_batches=1, replicas=(2, 1)))
    with pytest.raises(RefusedError, match="replicas of stage 0 stand on devices 0, 1, and some would share one"):
        share_devices(graph, 1)


def test_no_device_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="num_devices 0 must be at least 1"):
        share_devices(compile_program(written("0F0 0B0", m=1)), 0)


def test_recomputations_and_updates_that_a_program_places_stay_where_they_are() -> None:
    program = written("0F0 0R0 0B0 0U0", "1F0 1B0 1U0", m=1)
    (order,) = text_of(share_devices(compile_program(program), 1).orders())
    assert order == "0F0 0R0 1F0 1B0 0B0 1U0 0U0"
    assert np.array_equal(share_devices(compile_program(program), 2).kind, program.kind)
