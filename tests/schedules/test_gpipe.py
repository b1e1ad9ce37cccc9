"""GPipe: the paper's grid, options, values."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.notation.grid import grid
from schedir.schedules import gpipe
from schedir.schedules.registry import build_program

# Figure 2c of the paper for p = 3, m = 4.
GRID = """\
device 0 | F0 F1 F2 F3 .  .  .  .  B3 B2 B1 B0*
device 1 | .  F0 F1 F2 F3 .  .  B3 B2 B1 B0*.
device 2 | .  .  F0 F1 F2 F3 B3 B2 B1 B0*.  .""".splitlines()


def test_the_grid_is_the_papers_figure() -> None:
    graph = compile_program(build_program("gpipe", num_devices=3, num_micro_batches=4))

    assert grid(graph, width=80).splitlines()[:3] == GRID


def test_the_docstring_draws_the_same_grid() -> None:
    assert [line.strip() for line in (gpipe.__doc__ or "").splitlines() if "device" in line][:3] == GRID


def test_backwards_may_run_in_the_order_of_the_forwards() -> None:
    program = build_program("gpipe", num_devices=1, num_micro_batches=3, order="fifo")

    assert " ".join(map(str, program.order(0))) == "0F0 0F1 0F2 0B0 0B1 0B2"


def test_every_mini_batch_runs_the_same_order_behind_a_flush() -> None:
    program = build_program("gpipe", num_devices=1, num_micro_batches=2, num_mini_batches=2)

    assert " ".join(map(str, program.order(0))) == "0F0 0F1 0B1 0B0 0F2 0F3 0B3 0B2"


@pytest.mark.parametrize(("devices", "micro_batches", "entries"), [(1, 1, 2), (4, 1, 8), (4, 2, 16), (1, 8, 16), (7, 3, 42)])
def test_any_shape_is_taken(devices: int, micro_batches: int, entries: int) -> None:
    assert build_program("gpipe", num_devices=devices, num_micro_batches=micro_batches).num_entries == entries


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ArgumentError, match="order 'random' is unknown: use reverse or fifo"):
        build_program("gpipe", num_devices=2, num_micro_batches=2, order="random")


def test_several_stages_a_device_are_refused_with_the_remedy() -> None:
    with pytest.raises(RefusedError, match=r"^gpipe does not take this shape: it has one stage per device, .* leave it out"):
        build_program("gpipe", num_devices=2, num_micro_batches=2, stages_per_device=2)
