"""Interleaved 1F1B and the breadth-first loop: grids, stored orders, any m. D3 and D16 are known problems."""

import pytest

from schedir.costs.uniform import UniformCosts
from schedir.schedules import interleaved
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of
from tests.schedules.stored import makespans, stored_orders, timed

HALF = UniformCosts(forward=0.5, backward=1.0)

INTERLEAVED = """\
device 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 .   2B2 .   2B3*0B2 0B3*
device 1 | .   1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3*1B2 1B3*.""".splitlines()

LOOPED = """\
device 0 | 0F0 0F1 0F2 2F0 2F1 2F2 .   .   2B2 2B1 2B0*0B2 0B1 0B0*
device 1 | .   1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0*1B2 1B1 1B0*.""".splitlines()


def test_the_grids_are_those_of_the_docstring() -> None:
    assert grid_of("interleaved-1f1b", 2, 4) == INTERLEAVED
    assert grid_of("looped-bfs", 2, 3) == LOOPED
    assert drawn(interleaved.__doc__) == INTERLEAVED + LOOPED


@pytest.mark.parametrize(("name", "stored"), [("interleaved-1f1b", "interleaved 1F1B"), ("looped-bfs", "looped BFS")])
def test_orders_are_those_that_public_programs_emit(name: str, stored: str) -> None:
    program = build_program(name, num_devices=4, num_micro_batches=8)

    assert all(program.orders() == orders for orders in stored_orders(stored))


@pytest.mark.parametrize(("name", "stored"), [("interleaved-1f1b", "interleaved 1F1B"), ("looped-bfs", "looped BFS")])
def test_makespans_are_the_stored_ones(name: str, stored: str) -> None:
    for transfer, makespan in makespans(stored):
        assert timed(name, 4, 8, costs=UniformCosts(transfer=transfer)).makespan == pytest.approx(makespan)


def test_the_bubble_is_divided_by_the_stages_of_a_device() -> None:
    """D3: m(F + B) v + (p - 1)(F + B) with F = 0.5, B = 1, v = 2: 24 + 4.5, idle 4.5 of 28.5."""
    found = timed("interleaved-1f1b", 4, 8, costs=HALF)

    assert found.makespan == 28.5
    assert sum(found.idle) / (4 * found.makespan) == pytest.approx(0.157895, abs=1e-6)
    assert found.live == (11, 9, 7, 5)


def test_as_many_micro_batches_as_devices() -> None:
    """D3."""
    found = timed("interleaved-1f1b", 4, 4, costs=HALF)

    assert (found.makespan, found.live) == (16.5, (8, 8, 7, 5))


# D3: (m v + p - 1)(F + B) also where p does not divide m; with m < p every stage is free when it is needed: (p v + m - 1)(F + B).
@pytest.mark.parametrize(("shape", "makespan"), [((3, 10, 2), 33.0), ((4, 6, 2), 22.5), ((4, 9, 3), 45.0), ((4, 2, 2), 13.5)])
def test_any_number_of_micro_batches_is_taken(shape: tuple[int, int, int], makespan: float) -> None:
    devices, micro_batches, stages = shape

    assert timed("interleaved-1f1b", devices, micro_batches, costs=HALF, stages_per_device=stages).makespan == makespan


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 9])
def test_one_stage_a_device_is_plain_1f1b(micro_batches: int) -> None:
    """D3."""
    shape = {"num_devices": 4, "num_micro_batches": micro_batches}

    assert build_program("interleaved-1f1b", **shape, stages_per_device=1).orders() == build_program("1f1b", **shape).orders()


def test_one_stage_a_device_breadth_first_is_gpipe() -> None:
    shape = {"num_devices": 3, "num_micro_batches": 4}

    assert build_program("looped-bfs", **shape, stages_per_device=1).orders() == build_program("gpipe", **shape).orders()
