"""Which mini-batches a picture shows where a run has more than can be read: some, and a line says which and how to see others."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.timeline.timeline import Timeline

Part = tuple[int, int] | int
"""First and last mini-batch, or how many at most, of the middle of the steady state."""

ALL = sys.maxsize
"""As many as there are."""


def part(text: str) -> Part:
    """Read which mini-batches are drawn: `all`, how many, or the first and the last."""
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    if text == "all":
        return ALL
    if found is None or (found[2] is None and int(found[1]) < 1) or (found[2] is not None and int(found[2]) < int(found[1])):
        raise ArgumentError("must be all, a number of mini-batches, or the first and the last of them, as 4-6")
    return int(found[1]) if found[2] is None else (int(found[1]), int(found[2]))


def readable_part(timelines: Sequence[Timeline], *, from_start: bool) -> Part | None:
    """Return which mini-batches are drawn if nobody says: all (None) where they can be read, else the first, or steady ones."""
    from schedir.timeline.window import readable_count

    count = readable_count(timelines)
    if all(timeline.graph.program.num_mini_batches <= count for timeline in timelines):
        return None
    return (0, count - 1) if from_start else count


def part_line(timelines: Sequence[Timeline], drawn: Part | None, *, number_from: int = 0) -> str:
    """Say which mini-batches are drawn; nothing where all of every timeline are."""
    from schedir.timeline.window import drawn_part, part_text

    counts = [timeline.graph.program.num_mini_batches for timeline in timelines]
    parts = [drawn_part(timeline, drawn, most=max(counts)) for timeline in timelines]
    lines = [
        part_text(part[0] + number_from, part[1] + number_from, count) + " drawn"
        for part, count in zip(parts, counts, strict=True)
        if part is not None
    ]
    return "" if not lines else lines[0] if len(set(lines)) == 1 else "some of the mini-batches drawn, as the picture says"
