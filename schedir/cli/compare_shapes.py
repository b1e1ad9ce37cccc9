"""The shapes of schedules that stand side by side."""

from __future__ import annotations

from schedir.cli.compare_options import CompareShape
from schedir.cli.options import ShapeOptions
from schedir.cli.screen import counted
from schedir.errors import ArgumentError


def shapes_of(
    num_schedules: int,
    shape: CompareShape,
    *,
    devices: int | None = None,
    micro_batches: int | None = None,
    mini_batches: int | None = None,
) -> list[ShapeOptions]:
    """Return the shape of every schedule: what was given, else these defaults."""
    counts = shape.micro_batches or (micro_batches,)
    if len(counts) not in {1, num_schedules}:
        raise ArgumentError(
            f"--micro-batches has {len(counts)} values for {counted(num_schedules, 'schedule')}: "
            "give one value, or one per schedule"
        )
    return [
        ShapeOptions(
            devices=shape.devices or devices,
            micro_batches=count,
            mini_batches=shape.mini_batches or mini_batches,
            stages_per_device=shape.stages_per_device,
        )
        for count in (counts * num_schedules if len(counts) == 1 else counts)
    ]
