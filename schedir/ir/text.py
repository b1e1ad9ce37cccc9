"""Programs as text."""

from __future__ import annotations

from schedir.ir.program import Program


def print_program(program: Program) -> str:
    return "\n".join(" ".join(map(str, order)) for order in program.orders())


def marked_grid(program: Program, row: int | None) -> str:
    return print_program(program)
