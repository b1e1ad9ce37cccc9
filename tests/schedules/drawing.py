"""Orders as text: the grids of docstrings and of what a schedule builds, and plain orders."""

from collections.abc import Sequence
from typing import Any

from schedir.compiler import compile_program
from schedir.ir.cells import parse_action
from schedir.ir.grid import grid
from schedir.schedules.orders import Orders, Work
from schedir.schedules.registry import build_program


def drawn(doc: str | None) -> list[str]:
    """Return the lines of the grids in a docstring, one behind the other."""
    return [line.strip() for line in (doc or "").splitlines() if line.strip().startswith("device ") and " | " in line]


def grid_of(name: str, devices: int, micro_batches: int, **shape: Any) -> list[str]:
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, **shape)
    return grid(compile_program(program), width=240).splitlines()[:devices]


def text_of(name: str, devices: int, micro_batches: int, **shape: Any) -> list[str]:
    """Return the orders of all devices as text."""
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, **shape)
    return [" ".join(map(str, order)) for order in program.orders()]


def parsed(*orders: str) -> Orders:
    """Return the orders of all devices from their text: `0F0 0F1 0B0`."""
    cells = [[parse_action(cell) for cell in order.split()] for order in orders]
    return [[(action.kind, action.stage, action.micro_batch) for action in order] for order in cells]


def text(orders: Sequence[Sequence[Work]] | None) -> list[str]:
    """Return the text of orders, which must be there."""
    assert orders is not None
    return [" ".join(f"{stage}{kind.letter}{j}" for kind, stage, j in order) for order in orders]
