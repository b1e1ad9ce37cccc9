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


MOST_ACTIONS = 10**8
"""Forwards and backwards of one program: a gigabyte as a program and some ten times as much as a task graph."""


def too_large(num_stages: int, total_micro_batches: int) -> str | None:
    """Return why a program of so many stages and micro-batches cannot be built, or None; counts are plain ints."""
    num_actions = 2 * num_stages * total_micro_batches
    if num_actions <= MOST_ACTIONS:
        return None
    return (
        f"{num_actions} actions ({num_stages} stages x {total_micro_batches} micro-batches, forward and backward) are more "
        f"than the {MOST_ACTIONS} that can be built: give fewer devices, stages, micro-batches or mini-batches"
    )


def is_count(value: object) -> bool:
    """Return True for an integer of at least 1, numpy's too (True and 2.0 are none)."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1


def check_count(name: str, value: int) -> int:
    """Return a count as a plain int; raise ArgumentError if it is none."""
    if not is_count(value):
        raise ArgumentError(f"{name} {value!r} must be an integer of at least 1")
    return int(value)
