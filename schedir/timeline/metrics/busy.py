"""What devices were busy with: seconds by device and kind of work."""

from __future__ import annotations

from schedir.ir.action import COMPUTE_KINDS
from schedir.ir.arrays import Floats
from schedir.timeline.settled import SettledTimes, sum_by

NUM_COMPUTE_KINDS = len(COMPUTE_KINDS)
"""Kinds on compute lanes; they are the first of `Kind`, in its order."""


def busy_by_kind(settled: SettledTimes) -> Floats:
    """Return float64 (num_devices, num_compute_kinds): seconds of every device by kind, in the order of `Kind`."""
    graph = settled.graph
    num_devices, num_compute = graph.program.num_devices, graph.num_compute_tasks
    # one number for each (device, kind), so that one count sums a million tasks
    cell = graph.device[:num_compute] * NUM_COMPUTE_KINDS + graph.kind[:num_compute]
    seconds = sum_by(cell, settled.compute_seconds, num_devices * NUM_COMPUTE_KINDS)
    return seconds.reshape(num_devices, NUM_COMPUTE_KINDS)


ROUNDING = 1e-12
"""Relative: what sums of float64 may be off where nobody is idle."""


def idle_of(whole: float, busy: float) -> float:
    """Return whole - busy, seconds or fractions; 0 where it is negative by no more than rounding."""
    # more than rounding is left negative: tasks of one device that overlap are a fault to be seen, not to be hidden
    idle = whole - busy
    return 0.0 if -ROUNDING * whole <= idle < 0 else idle
