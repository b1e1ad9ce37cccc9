"""What schedules have in common whose micro-batches run through the same devices in two directions."""

from __future__ import annotations

from schedir.ir.shape import Shape


def refuse_odd(shape: Shape) -> str | None:
    """Say why a shape has no two equal halves, one for each direction; None if it has."""
    p, m = shape.num_devices, shape.num_micro_batches
    if shape.stages_per_device != 2:
        return f"a device hosts a stage of each direction, but stages_per_device is {shape.stages_per_device}: leave it out"
    if p % 2 or m % 2:
        return f"two directions need even numbers, but there are {p} devices and {m} micro-batches"
    return None
