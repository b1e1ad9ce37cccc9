"""Fractions as percent, as tables, pictures and reprs all print them: one digit behind the point, and never a negative zero."""

from __future__ import annotations

import math

UNKNOWN = "-"
"""Stands for what is not known, and for an error against nothing, which is infinite."""


def percent(fraction: float | None) -> str:
    """Return a fraction as percent: `4.2 %`; `-` if it is not known."""
    # z: what rounds to zero has no sign of its own (PEP 682)
    return UNKNOWN if fraction is None else f"{100 * fraction:z.1f} %"


def signed(fraction: float) -> str:
    """Return a fraction as percent with its sign: `+4.2 %`, `+0.0 %`; `-` if it is infinite."""
    return f"{100 * fraction:+z.1f} %" if math.isfinite(fraction) else UNKNOWN


def points(difference: float) -> str:
    """Return the difference of two fractions in percentage points with its sign: `-1.5 points`."""
    return f"{100 * difference:+z.1f} points"
