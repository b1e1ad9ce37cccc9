"""What goes to the terminal: tables, numbers with their units, and how wide it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedir.ir.program import Program

WIDTH = 100
"""Characters of a line where nobody says how wide the terminal is (COLUMNS does)."""

MOST_ROWS = 32
"""Rows of devices or stages that are shown on a terminal."""

GAP = "  "
"""Between the columns of a table."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def terminal_width() -> int:
    """Return how many characters a line of a drawing may have: what COLUMNS says, else what the terminal has."""
    return get_terminal_size((WIDTH, 24)).columns


def line_width() -> int | None:
    """Return how many characters a line of a table may have; None where nobody limits it: no terminal and no COLUMNS."""
    return terminal_width() if os.environ.get("COLUMNS") or sys.stdout.isatty() else None


def shown_rows(count: int) -> list[int]:
    """Return which of many rows are shown: all, but on a terminal the first and last ones where there are more than `MOST_ROWS`."""
    if count <= MOST_ROWS or not sys.stdout.isatty():
        return list(range(count))
    half = MOST_ROWS // 2
    return [*range(half), *range(count - half, count)]


def left_out(shown: Sequence[int], count: int, word: str) -> list[str]:
    """Return the line that says which rows are not shown and how to see them; none where all are."""
    if len(shown) == count:
        return []
    half = len(shown) // 2
    return [f"{word}s {half} to {count - half - 1} of {count} are left out here; `… | less -S` shows all"]


def seconds(value: float | None) -> str:
    """Return a time with the unit that suits it: `33 s`, `8.52 ms`; `0` is nothing, `-` not known."""
    return _with_unit(value, _SECONDS)


def amount(value: float | None) -> str:
    """Return bytes with the unit that suits them: `74.1 GB` (GB = 1e9)."""
    return _with_unit(value, _BYTES)


def seconds_range(least: float, most: float) -> str:
    """Return the times between two as text: `129 to 149 ms`, with the unit that suits the longer."""
    factor, unit = unit_for(most)
    return f"{short(least / factor)} to {short(most / factor)} {unit}"


def counted(count: int, word: str) -> str:
    """Return a count with its word: `1 device`, `4 mini-batches`."""
    plural = f"{word}es" if word.endswith("ch") else f"{word}s"
    return f"{count} {word if count == 1 else plural}"


def shape_text(program: Program) -> str:
    """Return a schedule and its shape: `gpipe: 4 devices, 4 stages, 1 mini-batch of 8 micro-batches`."""
    return (
        f"{program.name}: {counted(program.num_devices, 'device')}, {counted(program.num_stages, 'stage')}, "
        f"{counted(program.num_mini_batches, 'mini-batch')} of {counted(program.num_micro_batches, 'micro-batch')}"
    )


def unit_for(longest: float) -> tuple[float, str]:
    """Return the unit in which times up to this one are best read, as (seconds, name)."""
    return next((entry for entry in _SECONDS if longest >= entry[0]), _SECONDS[-1] if longest else _SECONDS[0])


def short(number: float) -> str:
    """Return three digits, or all those before the point."""
    text = f"{number:z.3g}" if abs(number) < 100 else f"{number:.1f}" if abs(number) < 1000 else f"{number:.0f}"
    return text.removesuffix(".0")


def _with_unit(value: float | None, units: Sequence[tuple[float, str]]) -> str:
    if not value:
        return "-" if value is None else "0"
    factor, unit = next((entry for entry in units if abs(value) >= entry[0]), units[-1])
    return f"{short(value / factor)} {unit}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table whole; the first column is text, all others are numbers.

    Where it is wider than a line it is turned, one row per column, or, if that is wider still, cut into tables below each
    other that all begin with the first column. Nothing is left out. Where nobody limits a line (output to a file or pipe,
    no COLUMNS), it stays as it is.
    """
    for number, table in enumerate(fitted([list(columns), *map(list, rows)], line_width())):
        print("\n" * bool(number) + "\n".join(table))


def fitted(table: list[list[str]], width: int | None) -> list[list[str]]:
    """Return the lines of one or several tables of at most `width` characters that hold all cells of a table."""
    whole = _lines(table)
    if width is None or len(whole[1]) <= width:
        return [whole]
    turned = _lines([list(row) for row in zip(*table, strict=True)])
    if len(turned[1]) <= width:
        return [turned]
    return [_lines([[row[index] for index in (0, *block)] for row in table]) for block in _blocks(table, width)]


def _blocks(table: list[list[str]], width: int) -> list[list[int]]:
    """Return the columns of each piece of a table, as many as fit beside the first column, at least one."""
    first, *others = _widths(table)
    blocks: list[list[int]] = []
    used = width + 1
    for index, size in enumerate(others, 1):
        if used + len(GAP) + size > width:
            blocks.append([])
            used = first
        blocks[-1].append(index)
        used += len(GAP) + size
    return blocks


def _lines(table: list[list[str]]) -> list[str]:
    """Return a table as text, its head underlined; the first column to the left, all others to the right."""
    widths = _widths(table)
    lines = [
        GAP.join(
            cell.rjust(size) if index else cell.ljust(size) for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]
    return [lines[0], "─" * (sum(widths) + len(GAP) * (len(widths) - 1)), *lines[1:]]


def _widths(table: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]
