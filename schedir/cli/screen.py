"""What goes to the terminal: tables, numbers with their units, and how wide it is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size

WIDTH = 100
"""Characters of a line where nobody says how wide the terminal is (COLUMNS does)."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def terminal_width() -> int:
    """Return how many characters a line of the terminal has."""
    return get_terminal_size((WIDTH, 24)).columns


def seconds(value: float | None) -> str:
    """Return a time with the unit that suits it: `33 s`, `8.52 ms`; `0` is nothing, `-` not known."""
    return _with_unit(value, _SECONDS)


def amount(value: float | None) -> str:
    """Return bytes with the unit that suits them: `74.1 GB` (GB = 1e9)."""
    return _with_unit(value, _BYTES)


def percent(value: float | None) -> str:
    """Return a fraction as percent."""
    return "-" if value is None else f"{100 * value:.1f} %"


def signed(fraction: float) -> str:
    """Return a fraction as percent with its sign: `+4.2 %`."""
    return f"{100 * fraction:+.1f} %"


def counted(count: int, word: str) -> str:
    """Return a count with its word: `1 device`, `4 mini-batches`."""
    plural = f"{word}es" if word.endswith("ch") else f"{word}s"
    return f"{count} {word if count == 1 else plural}"


def unit_for(longest: float) -> tuple[float, str]:
    """Return the unit in which times up to this one are best read, as (seconds, name)."""
    return next((entry for entry in _SECONDS if longest >= entry[0]), _SECONDS[-1] if longest else _SECONDS[0])


def short(number: float) -> str:
    """Return three digits, or all those before the point."""
    text = f"{number:.3g}" if abs(number) < 100 else f"{number:.1f}" if abs(number) < 1000 else f"{number:.0f}"
    return text.removesuffix(".0")


def _with_unit(value: float | None, units: Sequence[tuple[float, str]]) -> str:
    if not value:
        return "-" if value is None else "0"
    factor, unit = next((entry for entry in units if abs(value) >= entry[0]), units[-1])
    return f"{short(value / factor)} {unit}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; the first column is text, all others are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    lines = list(rows)
    width = terminal_width()
    widths = [max(map(len, column)) for column in zip(columns, *lines, strict=True)]
    gap = 1 if sum(widths) + 2 * len(widths) <= width else 0
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), show_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False).print(table)
