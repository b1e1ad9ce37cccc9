"""Programs as text."""

from __future__ import annotations

from schedir.ir.program import Program


def print_program(program: Program) -> str:
    """Return one line per device."""
    return "\n".join(" ".join(map(str, order)) for order in program.orders())


def marked_grid(program: Program, row: int | None) -> str:
    """Return the grid with the entry `row` marked."""
    return print_program(program) if row is None else f"{print_program(program)}\nentry {row}"
