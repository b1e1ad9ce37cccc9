"""Round numbers along an axis."""

from __future__ import annotations

import math


def nice_ticks(first: float, last: float, wanted: int = 8) -> list[tuple[float, str]]:
    """Return (value, label) of about `wanted` round values from `first` to `last`: multiples of 1, 2 or 5 times a power of ten."""
    if not last > first:
        return [(first, f"{first:.6g}")]
    step = _round_step((last - first) / wanted)
    low, high = math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9)
    return [(number * step, f"{number * step:.6g}") for number in range(low, high + 1)]


def _round_step(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * 0.999)
