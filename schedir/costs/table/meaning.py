"""What the numbers of a table mean: of which piece of a model they are, and how they change with a micro-batch's size."""

from __future__ import annotations

from enum import StrEnum


class Granularity(StrEnum):
    """What a row of the table is."""

    STAGE = "stage"
    LAYER = "layer"


class Scaling(StrEnum):
    """How times and bytes change with the size of a micro-batch (updates, predictions and weights never do)."""

    LINEAR = "linear"
    """In proportion."""
    FIXED = "fixed"
    """Not at all."""
    TABLE = "table"
    """As tabulated by size, linear between two sizes; what is not tabulated does not change."""
