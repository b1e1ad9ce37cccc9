"""Peak memory of every device, and the verdict whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schedir.bytes_text import bytes_text
from schedir.timeline.timeline import MemoryClass, MemorySteps, Timeline


@dataclass(frozen=True, slots=True)
class BytesByClass:
    """Bytes held for each purpose at one moment."""

    weights: int
    versions: int
    gradients: int
    optimizer: int
    activations: int
    recomputed: int
    transfer_buffers: int
    workspace: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The first moment at which a device holds most."""

    bytes: int
    at_s: float
    by_class: BytesByClass

    @property
    def largest(self) -> MemoryClass:
        """The class that holds most of it."""
        return max(MemoryClass, key=lambda name: getattr(self.by_class, name))


def peaks(timeline: Timeline) -> tuple[Peak, ...] | None:
    """Return the peak of every device, or None if memory is not modelled."""
    return None if timeline.memory is None else tuple(map(_peak, timeline.memory))


def _peak(steps: MemorySteps) -> Peak:
    if not len(steps.time):
        return Peak(0, 0.0, BytesByClass(*[0] * len(MemoryClass)))
    total = steps.total
    # argmax gives the first of equal ones: when the device is full, not when it is still full
    at = int(total.argmax())
    return Peak(int(total[at]), float(steps.time[at]), BytesByClass(*steps.by_class[at].tolist()))


def verdict(found: Sequence[Peak], limits: Sequence[int], reserved: Sequence[int] | None = None) -> str:
    """Say in one line which device is over its limit by most, or, if none is, which is fullest.

    `reserved` are the bytes of each device that its limit leaves out.
    """
    # of equal ones the first
    device = max(range(len(found)), key=lambda index: (found[index].bytes - limits[index], -index))
    peak, limit = found[device], limits[device]
    if peak.bytes <= limit:
        return f"fits: device {device} is fullest with {bytes_text(peak.bytes)} of {bytes_text(limit)}"
    held = bytes_text(getattr(peak.by_class, peak.largest))
    less = _less(limit, reserved[device]) if reserved is not None and reserved[device] else ""
    return (
        f"device {device}: {bytes_text(peak.bytes)} > {bytes_text(limit)}{less}: {peak.largest} {held} at {peak.at_s:.6g} s: "
        f"{_REMEDIES[peak.largest]}"
    )


def _less(limit: int, reserved: int) -> str:
    """Return what a limit is made of, without the zeros of data sheets: ` (80 GB less 6 GB reserved)`."""
    whole, part = (bytes_text(count).replace(".0 ", " ") for count in (limit + reserved, reserved))
    return f" ({whole} less {part} reserved)"


_FEWER_WEIGHTS = "more devices"
_REMEDIES = {
    MemoryClass.WEIGHTS: _FEWER_WEIGHTS,
    MemoryClass.VERSIONS: "a schedule that keeps fewer versions, more micro-batches per mini-batch",
    MemoryClass.GRADIENTS: _FEWER_WEIGHTS,
    MemoryClass.OPTIMIZER: f"{_FEWER_WEIGHTS}, an optimizer with less state",
    MemoryClass.ACTIVATIONS: "recompute, smaller micro_batch_size",
    MemoryClass.RECOMPUTED: "smaller micro_batch_size, more stages",
    MemoryClass.TRANSFER_BUFFERS: "smaller micro_batch_size",
    MemoryClass.WORKSPACE: "smaller micro_batch_size",
}
