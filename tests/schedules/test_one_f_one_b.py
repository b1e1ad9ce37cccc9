"""1F1B: grid and orders."""

import pytest

from schedir.compiler import compile_program
from schedir.ir.notation.grid import grid
from schedir.schedules import one_f_one_b
from schedir.schedules.registry import build_program

GRID = """\
device 0 | F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3*
device 1 | .  F0 F1 .  B0 F2 B1 F3 B2 .  B3*.
device 2 | .  .  F0 B0 F1 B1 F2 B2 F3 B3*.  .""".splitlines()


def test_the_grid_is_that_of_dapple_and_pipedream_flush() -> None:
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=4))

    assert grid(graph, width=80).splitlines()[:3] == GRID


def test_the_docstring_draws_the_same_grid() -> None:
    assert [line.strip() for line in (one_f_one_b.__doc__ or "").splitlines() if "device 0 |" in line or " | ." in line] == GRID


@pytest.mark.parametrize(
    ("micro_batches", "first", "last"),
    [
        (1, "0F0 0B0", "2F0 2B0"),
        (2, "0F0 0F1 0B0 0B1", "2F0 2B0 2F1 2B1"),
        (3, "0F0 0F1 0F2 0B0 0B1 0B2", "2F0 2B0 2F1 2B1 2F2 2B2"),
        (5, "0F0 0F1 0F2 0B0 0F3 0B1 0F4 0B2 0B3 0B4", "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4"),
    ],
)
def test_orders_of_the_first_and_last_of_three_devices(micro_batches: int, first: str, last: str) -> None:
    program = build_program("1f1b", num_devices=3, num_micro_batches=micro_batches)

    assert " ".join(map(str, program.order(0))) == first
    assert " ".join(map(str, program.order(2))) == last


def test_the_second_mini_batch_starts_behind_the_flush() -> None:
    program = build_program("1f1b", num_devices=2, num_micro_batches=2, num_mini_batches=2)

    assert " ".join(map(str, program.order(0))) == "0F0 0F1 0B0 0B1 0F2 0F3 0B2 0B3"
