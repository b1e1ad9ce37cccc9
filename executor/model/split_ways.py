"""The ways to split a backward."""

from __future__ import annotations

from enum import StrEnum


class Split(StrEnum):
    """What the input-gradient half of a backward leaves to the weight-gradient half."""

    DEFERRED = "deferred"
    """Products of what it has kept: each layer's input and output gradient."""
    DIFFERENTIATE = "differentiate"
    """The recorded graph, to be differentiated again: slower, and the reference for the other."""
