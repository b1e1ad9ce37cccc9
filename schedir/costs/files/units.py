"""Quantities with their unit in a string: "80 GB", "400 Gbit/s", "3 us", "989 TFLOP/s".

Prefixes of bytes: k, M, G, T, P = 1000 apart, Ki, Mi, Gi, Ti, Pi = 1024 apart. B is a byte, bit is a bit. Bare numbers are
base units (seconds, bytes, bytes/s, FLOP/s) and must make sense as such: `bandwidth = 50` is refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches

from schedir.errors import ArgumentError

# Decimals, so that "18.522 ms" is the float next to 0.018522 and not what 18.522 * 1e-3 rounds to.
_DECIMAL = {prefix: Decimal(10) ** power for prefix, power in zip(("", "k", "M", "G", "T", "P", "E"), range(0, 21, 3), strict=True)}
_BINARY = {prefix: Decimal(2) ** power for prefix, power in zip(("Ki", "Mi", "Gi", "Ti", "Pi"), range(10, 60, 10), strict=True)}


def _sizes(ending: str) -> dict[str, Decimal]:
    prefixes = _DECIMAL | _BINARY
    units = {f"{prefix}B{ending}": factor for prefix, factor in prefixes.items()}
    return units | {f"{prefix}bit{ending}": factor / 8 for prefix, factor in prefixes.items()}


@dataclass(frozen=True, slots=True)
class Dimension:
    """A kind of quantity: its base unit, the units it may be written in, and which bare numbers make sense."""

    base: str
    """Unit of bare numbers."""
    units: dict[str, Decimal]
    """Factor from each unit to the base unit."""
    meant: tuple[tuple[str, int], ...]
    """What an absurd bare number was probably meant as, (unit, factor on the number); also the examples of a refusal."""
    least: float = 0.0
    """A bare number below this (and not 0) is absurd."""
    most: float = math.inf
    """A bare number above this is absurd."""


_SECONDS = {unit: Decimal(factor) for unit, factor in (("s", "1"), ("ms", "1e-3"), ("us", "1e-6"), ("µs", "1e-6"), ("ns", "1e-9"))}

TIME = Dimension("s", _SECONDS, (("us", 1), ("ms", 1)))
LATENCY = Dimension("s", _SECONDS, TIME.meant, most=1.0)
"""The time a message needs to cross a link: a bare number above one second was meant in another unit."""
BYTES = Dimension("bytes", _sizes(""), (("MB", 1), ("GB", 1)))
MEMORY = Dimension("bytes", BYTES.units, (("GB", 1), ("GiB", 1)), least=1e6)
"""A device's memory: a bare number below a megabyte was meant in another unit."""
BANDWIDTH = Dimension("bytes/s", _sizes("/s"), (("GB/s", 1), ("Gbit/s", 8)), least=1e5)
FLOPS = Dimension(
    "FLOP/s", {f"{prefix}FLOP/s": factor for prefix, factor in _DECIMAL.items()}, (("TFLOP/s", 1), ("GFLOP/s", 1000)), least=1e6
)

# number, spaces, unit; the unit must not begin with a digit, or "1 2 GB" would be 1 of the unit "2 GB"
_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\s\d].*?)?\s*")


def parse_quantity(value: object, dimension: Dimension) -> float:
    """Return a number or a string with a unit in base units; raise ArgumentError with value, rule and remedy."""
    if isinstance(value, str):
        return _parse_text(value, dimension)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(
            f"{value!r} is no quantity: write a number of {dimension.base}, or text like {_examples(50, dimension)}"
        )
    number = _checked(float(value), f"{value}")
    # text has its unit with it and means what it says; of a bare number the unit may have been forgotten
    if number and not dimension.least <= number <= dimension.most:
        raise ArgumentError(f"{number:g} {dimension.base} is absurd: write {_examples(number, dimension)}")
    return number


def _parse_text(text: str, dimension: Dimension) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] is None:
        raise ArgumentError(f"{text!r} is no quantity: write a number and a unit, like {_examples(50, dimension)}")
    number, unit = match[1], match[2]
    if unit not in dimension.units:
        raise ArgumentError(f"{text!r} has the unknown unit {unit!r}: {_advice(unit, dimension)}")
    return _checked(float(Decimal(number) * dimension.units[unit]), repr(text))


def _checked(number: float, shown: str) -> float:
    if not math.isfinite(number):
        raise ArgumentError(f"{shown} is not finite: give a finite number of at least 0")
    if number < 0:
        raise ArgumentError(f"{shown} is negative: give a finite number of at least 0")
    return number


def _examples(number: float, dimension: Dimension) -> str:
    return " or ".join(f'"{number * factor:g} {unit}"' for unit, factor in dimension.meant)


def _advice(unit: str, dimension: Dimension) -> str:
    # first the same letters in another case ("gb", "MS"), then what is near
    close = [known for known in dimension.units if known.lower() == unit.lower()]
    close = close or get_close_matches(unit, dimension.units, n=1, cutoff=0.5)
    examples = _examples(50, dimension)
    return f"did you mean {close[0]!r}? Write it like {examples}" if close else f"write it like {examples}"
