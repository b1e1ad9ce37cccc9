"""Orders as text: the grids of docstrings and of what a schedule builds, and plain orders."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from schedir.compiler import compile_program
from schedir.ir.action import Action, Kind
from schedir.ir.notation.cells import parse_action
from schedir.ir.notation.grid import grid
from schedir.schedules.layout.orders import SPLIT, Ways
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


def single(cell: str) -> Action:
    """Return the action of a cell that is no pair."""
    action = parse_action(cell)
    assert isinstance(action, Action)
    return action


def coded(*orders: str) -> list[list[int]]:
    """Return the orders of all devices as codes from their text: `0F0 0F1 0I0`; every stage stands on one device."""
    cells = [[single(cell) for cell in order.split()] for order in orders]
    stages = 1 + max(action.stage for order in cells for action in order)
    side = {Kind.FORWARD: 0, Kind.WEIGHT_GRAD: 2}
    return [[side.get(action.kind, 1) * stages + action.stage for action in order] for order in cells]


def homes_of(orders: Sequence[str]) -> list[int]:
    """Return the device of every stage of orders as text."""
    home = {single(cell).stage: device for device, order in enumerate(orders) for cell in order.split()}
    return [home[stage] for stage in range(len(home))]


def text(orders: Sequence[Sequence[int]] | None, ways: Ways, kinds: Sequence[Kind] = SPLIT) -> list[str]:
    """Return the text of orders, which must be there."""
    assert orders is not None
    work = [f"{stage}{Kind(kind).letter}{j}" for kind, stage, j in zip(*ways.columns(orders, kinds), strict=True)]
    starts = [0, *accumulate(map(len, orders))]
    return [" ".join(work[low:high]) for low, high in pairwise(starts)]
