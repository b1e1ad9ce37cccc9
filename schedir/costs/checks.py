"""Guards for numbers that people give: every refusal names the value, the rule and the remedy in one line."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real

from schedir.errors import ArgumentError
from schedir.expect import shown

PerStage = float | tuple[float, ...]
"""One value for all stages, or one per stage."""

MOST_SECONDS = 1e12
"""Thirty thousand years; sums of times up to this keep their digits and stay finite."""


def plain_number(value: object) -> object:
    """Return the number in a value of NumPy or torch that has no dimensions, anything else as it is."""
    # torch is not imported for this: both give their value by the same name
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def non_negative(name: str, value: object, unit: str = "seconds") -> float:
    """Return the value as a float if it is a finite number of at least 0; raise ArgumentError if not."""
    value = plain_number(value)
    # a bool is a Real in Python, but `forward=True` is a mistake
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentError(f"{name} {shown(value)} is not a number: give {unit}, finite and at least 0")
    try:
        number = float(value)
    except OverflowError:
        raise ArgumentError(f"{name} is beyond the largest float (1.8e308): give {unit}, finite and at least 0") from None
    if not math.isfinite(number):
        raise ArgumentError(f"{name} {number} is not finite: give {unit}, finite and at least 0")
    if number < 0:
        raise ArgumentError(f"{name} {number:g} is negative: give {unit}, finite and at least 0")
    if unit == "seconds" and number > MOST_SECONDS:
        raise ArgumentError(f"{name} {number:g} is more than the {MOST_SECONDS:g} seconds that a time may have: give less")
    return number


def per_stage(name: str, value: object, unit: str = "seconds") -> PerStage:
    """Return one float, or a tuple of one per stage; raise ArgumentError for anything else."""
    value = plain_number(value)  # an array without dimensions has an __iter__, which raises
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return non_negative(name, value, unit)
    numbers = tuple(non_negative(f"{name}[{stage}]", number, unit) for stage, number in enumerate(value))
    if not numbers:
        raise ArgumentError(f"{name} is empty: give one value, or one per stage")
    return numbers


def check_length(name: str, value: PerStage, *, num_stages: int, program: str) -> None:
    """Raise ArgumentError unless there is one value, or one per stage."""
    if isinstance(value, tuple) and len(value) != num_stages:
        raise ArgumentError(
            f"{name} has {len(value)} values, but {program} has {num_stages} stages: give one value, or one per stage"
        )


def sizes_of_micro_batches(values: Iterable[object]) -> tuple[int, ...]:
    """Return the samples of each micro-batch of a mini-batch; raise ArgumentError unless all are positive integers."""
    sizes: list[int] = []
    for size in map(plain_number, values):
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise ArgumentError(f"micro_batch_sizes {shown(size)} is no size: give integers of at least 1, one per micro-batch")
        sizes.append(int(size))
    return tuple(sizes)


def check_sizes(sizes: tuple[int, ...], *, num_micro_batches: int, program: str) -> None:
    """Raise ArgumentError unless there is one size for every micro-batch of a mini-batch."""
    if len(sizes) != num_micro_batches:
        raise ArgumentError(
            f"micro_batch_sizes has {len(sizes)} values, but {program} has {num_micro_batches} micro-batches per mini-batch: "
            "give one for each"
        )


def positive_integer(name: str, value: object) -> int:
    """Return the value if it is an integer of at least 1; raise ArgumentError if not."""
    value = plain_number(value)
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ArgumentError(f"{name} {shown(value)} must be an integer of at least 1")
    return int(value)
