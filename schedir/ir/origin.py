"""The file that a program came from, for messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a program was read from, so that what is wrong with it can be said with file and line."""

    file: str
    lines: tuple[int, ...] = ()
    """1-based line of each device's order; empty where unknown."""

    def place(self, device: int | None = None) -> str:
        """Return `file:line: ` of a device's order, or `file: `."""
        known = device is not None and device < len(self.lines)
        return f"{self.file}:{self.lines[device]}: " if known and device is not None else f"{self.file}: "
