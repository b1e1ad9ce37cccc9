"""Names of what others have begun to write: a process that is gone, and one that is there."""

import os

from schedir.partials import place, started

GONE = f"{place()}.{2**70}.1.1"
THERE = f"{place()}.{os.getppid()}.{started(os.getppid()) or 0}.1"
"""Whoever has started this process."""


def beside(name: str, writer: str) -> str:
    """Return the name under which a process has begun to write what gets a name."""
    return f".partial.{writer}.{name}"
