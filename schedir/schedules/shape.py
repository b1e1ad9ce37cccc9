"""The shape of a pipeline, and what a schedule is: a pure function from a shape to a program, with the shapes it accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schedir.ir.program import Program


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
    """Return True for an integer of at least 1 (True and 2.0 are none)."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def accepts_any(shape: Shape) -> str | None:
    """Accept every shape of one stage per device."""
    if shape.stages_per_device != 1:
        return f"it has one stage per device, but stages_per_device is {shape.stages_per_device}: use interleaved-1f1b for more"
    return None


@dataclass(frozen=True, slots=True)
class Schedule:
    """An entry of the table of schedules."""

    name: str
    build: Callable[..., Program]
    """(shape, **options) -> Program."""
    summary: str
    """One line: what it is known for and whose it is."""
    accepts: Callable[[Shape], str | None] = accepts_any
    """Return the reason why a shape is refused, or None."""
    continuous: bool = False
    """It never flushes: its order's unit is the micro-batch and it may go on for ever."""
    stages_per_device: int = 1
    """Used where none is asked for."""

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options that `build` takes beside the shape."""
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    def default_mini_batches(self, num_devices: int) -> int:
        """1 for synchronous schedules; 2p + 8 for continuous ones, enough to show a steady state."""
        return 2 * num_devices + 8 if self.continuous else 1
