"""What a schedule is: a pure function from a shape to a program, with the shapes that it accepts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schedir.ir.program import Program
from schedir.ir.shape import Shape, check_count


def accepts_any(shape: Shape) -> str | None:
    """Accept every shape of one stage per device."""
    if shape.stages_per_device != 1:
        return f"it has one stage per device, but stages_per_device is {shape.stages_per_device}: leave it out"
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
    multiplied_by: str | None = None
    """An option that is a count: so many times `stages_per_device` are used where it is given."""

    @property
    def options(self) -> dict[str, Any]:
        """Names and defaults of the options that `build` takes beside the shape."""
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    def default_stages(self, options: Mapping[str, Any]) -> int:
        """Return the stages per device where none are asked for; raise ArgumentError for an option that is no count."""
        if self.multiplied_by is None or options.get(self.multiplied_by) is None:
            return self.stages_per_device
        return self.stages_per_device * check_count(self.multiplied_by, options[self.multiplied_by])

    def default_mini_batches(self, num_devices: int) -> int:
        """1 for synchronous schedules; 2p + 8 for continuous ones, enough to show a steady state."""
        return 2 * num_devices + 8 if self.continuous else 1
