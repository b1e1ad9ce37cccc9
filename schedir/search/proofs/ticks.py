"""Seconds as whole ticks for a solver of integers: exactly where that can be, else rounded so that bounds stay bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

MOST_TICKS = 2**40
"""Ticks of a whole schedule, beyond which times are rounded."""

FINE = 10**7
"""Ticks of a whole schedule whose times are rounded."""

_MOST_PARTS = 10**6
_ALIKE = 1e-12
"""Relative difference of a float and the fraction that it stands for."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """A unit of time. Rounded ticks are never more than the seconds are, so no order is longer in ticks than in seconds."""

    per_second: Fraction
    exact: bool
    """All times are whole numbers of ticks."""

    def of(self, seconds: float) -> int:
        """Return seconds as ticks."""
        ticks = _fraction(seconds) * self.per_second
        return int(ticks) if self.exact else math.floor(Fraction(seconds) * self.per_second)

    def nearest(self, seconds: float) -> int:
        """Return the nearest number of ticks."""
        return round(Fraction(seconds) * self.per_second)

    def above(self, bound: float) -> int:
        """Return the least number of ticks that a schedule of at least `bound` seconds has."""
        # a thousandth less: float arithmetic may have put the bound a hair above a whole tick
        return math.ceil(Fraction(bound) * self.per_second - Fraction(1, 1000)) if self.exact else 0

    def seconds(self, ticks: float) -> float:
        """Return ticks as seconds."""
        return float(Fraction(ticks) / self.per_second)


def ticks_for(times: Iterable[float], whole: float) -> Ticks:
    """Return ticks for these times, where a schedule takes no longer than `whole` seconds."""
    distinct = set(times)
    fractions = [_fraction(seconds) for seconds in distinct]
    parts = math.lcm(*(fraction.denominator for fraction in fractions)) if fractions else 1
    alike = all(
        abs(fraction - Fraction(seconds)) <= _ALIKE * abs(seconds) for fraction, seconds in zip(fractions, distinct, strict=True)
    )
    if alike and parts * whole <= MOST_TICKS:
        return Ticks(Fraction(parts), exact=True)
    return Ticks(Fraction(FINE) / Fraction(whole or 1.0), exact=False)


def _fraction(seconds: float) -> Fraction:
    return Fraction(seconds).limit_denominator(_MOST_PARTS)
