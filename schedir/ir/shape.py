"""The shape of a pipeline that a schedule is asked for, and the check that all its counts share."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from schedir.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Shape:
    """How many devices, micro-batches, mini-batches and stages per device a schedule is asked for; all at least 1."""

    num_devices: int
    num_micro_batches: int
    """m: micro-batches per update and replica."""
    num_mini_batches: int
    stages_per_device: int

    @property
    def num_stages(self) -> int:
        """Stages if no device shares one with another."""
        return self.num_devices * self.stages_per_device

    @property
    def total_micro_batches(self) -> int:
        return self.num_micro_batches * self.num_mini_batches


def is_count(value: object) -> bool:
    """Return True for an integer of at least 1, numpy's too (True and 2.0 are none)."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def check_count(name: str, value: int) -> int:
    """Return a count as a plain int; raise ArgumentError if it is none."""
    if not is_count(value):
        raise ArgumentError(f"{name} {value!r} must be an integer of at least 1")
    return int(value)
