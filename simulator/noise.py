"""Seeded jitter: every duration is multiplied by exp(sigma * z), z normal, so that its median stays what the costs say.

The numbers are the same on every machine. Random bits are (numpy's PCG64), and sums, products and roundings are; only a
logarithm in the normal's far tail may differ in its last bit from one C library to another, and the exponential anywhere. So z is
rounded to a grid, and the exponential is made of products.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from schedir.costs.checks import non_negative
from schedir.errors import ArgumentError

Floats = NDArray[np.float64]

MOST_SIGMA = 2.0
"""Above it durations differ by orders of magnitude, which no device does."""

_GRID = 2.0**20
_HALVINGS = 12  # exp(x) = exp(x / 2^12)^(2^12): the series of the inner one needs three terms


def check_noise(noise: object) -> float:
    """Return `noise` if it is a standard deviation from 0 to MOST_SIGMA; raise ArgumentError if not."""
    sigma = non_negative("noise", noise, "the standard deviation of a duration's logarithm, such as 0.03")
    if sigma > MOST_SIGMA:
        raise ArgumentError(f"noise {sigma:g} is more than {MOST_SIGMA:g}: give the standard deviation of a duration's logarithm")
    return sigma


def check_seed(seed: object) -> int | None:
    """Return `seed` if it is an integer of at least 0, or None; raise ArgumentError if not."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0:
        raise ArgumentError(f"seed {seed!r} must be an integer of at least 0")
    return int(seed)


def stream(seed: int, sample: int) -> np.random.Generator:
    """Return the random numbers of one sample of a run; sample 0 is what a single simulation draws."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, sample])))


def jitter(shape: int, sigma: float, generator: np.random.Generator) -> Floats:
    """Return as many factors exp(sigma * z); a sigma of 0 gives 1 throughout."""
    normal = np.rint(generator.standard_normal(shape) * _GRID) / _GRID
    return exponential(sigma * normal)


def exponential(values: Floats) -> Floats:
    """Return exp of values below 100 in size, within 1e-11 of their own size, by products and sums only."""
    small = values / 2.0**_HALVINGS
    result = 1.0 + small * (1.0 + small * (0.5 + small * (1.0 / 6.0 + small / 24.0)))
    for _ in range(_HALVINGS):
        result = result * result
    return result
