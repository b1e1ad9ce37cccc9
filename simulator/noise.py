"""Seeded jitter: every duration is multiplied by exp(sigma * z), z normal, so that its median stays what the costs say.

The numbers are the same on every machine. Random bits are (numpy's PCG64), and sums, products and roundings are; only a
logarithm in the normal's far tail may differ in its last bit from one C library to another, and the exponential anywhere. So z is
rounded to a grid, and the exponential is made of products.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np

from schedir.costs.checks import non_negative
from schedir.errors import ArgumentError
from schedir.ir.arrays import Floats

MOST_JITTER = 2.0
"""Above it durations differ by orders of magnitude, which no device does."""

_GRID = 2.0**20
_HALVINGS = 8  # exp(x) = exp(x / 2^8)^(2^8), and the series of the inner one converges fast
_SERIES = (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0)


def check_jitter(jitter: object) -> float:
    """Return `jitter` if it is a standard deviation from 0 to MOST_JITTER; raise ArgumentError if not."""
    sigma = non_negative("jitter", jitter, "the standard deviation of a duration's logarithm, such as 0.03")
    if sigma > MOST_JITTER:
        raise ArgumentError(f"jitter {sigma:g} is above {MOST_JITTER:g}: give the standard deviation of a duration's logarithm")
    return sigma


def check_seed(seed: object) -> int | None:
    """Return `seed` if it is an integer of at least 0, or None; raise ArgumentError if not."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ArgumentError(f"seed {seed!r} must be an integer of at least 0")
    return int(seed)


def stream(seed: int) -> np.random.Generator:
    """Return the random numbers of a seed; a run takes the first of them, Monte-Carlo samples take theirs one behind the other."""
    return np.random.Generator(np.random.PCG64(seed))


def jittered(duration: Floats, sigma: float, generator: np.random.Generator) -> Floats:
    """Return durations, each times its own exp(sigma * z)."""
    normal = np.rint(generator.standard_normal(len(duration)) * _GRID) / _GRID
    return duration * exponential(sigma * normal)


def exponential(values: Floats) -> Floats:
    """Return exp of values below 20 in size by products and sums only, right to 9 digits, to 13 below 5."""
    # Horner's scheme for the Taylor series to x^6 / 720, then squared _HALVINGS times
    small = values / 2.0**_HALVINGS
    result = np.full_like(small, _SERIES[0])
    for coefficient in _SERIES[1:]:
        result *= small
        result += coefficient
    for _ in range(_HALVINGS):
        result *= result
    return result
