"""Sections of docs/performance.md: every benchmark replaces its own and leaves the others as they are."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

PERFORMANCE = Path(__file__).parents[1] / "docs" / "performance.md"

_INTRODUCTION = """# Performance

Measured by the programs in benchmarks/, each of which writes its own section here. Ratios are of one run; seconds differ from
machine to machine.
"""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; the first column is text, the others are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def machine(*packages: str) -> str:
    """Say in general terms where a benchmark ran: cores, Python and packages, no names."""
    versions = "".join(f", {package} {version(package)}" for package in packages)
    return f"{os.cpu_count()} shared cores, Python {platform.python_version()}{versions}"


def write_section(title: str, body: str, path: Path = PERFORMANCE) -> None:
    """Replace the section `## title`, or add it as the last one; a file that is not there is begun."""
    text = path.read_text(encoding="utf-8") if path.exists() else _INTRODUCTION
    head = f"## {title}\n"
    section = f"{head}\n{body.strip()}"
    parts = [part.strip() for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)]
    places = [place for place, part in enumerate(parts) if f"{part}\n".startswith(head)]
    if places:
        parts[places[0]] = section
    else:
        parts.append(section)
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
