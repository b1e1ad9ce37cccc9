"""Two ways in which micro-batches move BatchNorm's running statistics."""

from __future__ import annotations

from enum import StrEnum


class NormWay(StrEnum):
    """How BatchNorm's running statistics follow micro-batches."""

    PLAIN = "plain"
    """Every micro-batch moves them, as its forward runs."""
    DEFERRED = "deferred"
    """A mini-batch moves them once, as if it had not been cut."""
