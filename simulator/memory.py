"""The memory ledger: counts of units (`schedir.lowering.memory`), their bytes and the spans make the steps of every device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedir.costs.model import UnitBytes
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import Spans
from schedir.lowering.effects import CLASSES, RUN_START, MemoryEffects, Moment, Unit
from schedir.lowering.memory import memory_effects
from schedir.timeline.timeline import MemorySteps


def ledger(graph: TaskGraph, spans: Spans, unit_bytes: UnitBytes) -> tuple[MemorySteps, ...]:
    """Return the memory of every device over time, in whole bytes, from second 0 on.

    Changes at one time stay steps of their own, in the order of the device's tasks: what takes no time holds memory, too, and
    what one task frees is free for the next.
    """
    effects = memory_effects(graph)
    change = bytes_of(effects, unit_bytes, graph.program.num_micro_batches)
    # what has no bytes makes no step
    counted = np.flatnonzero(change)
    bounds = np.searchsorted(counted, effects.device_start)
    changes = _Changes(
        time=_times_of(effects, spans)[counted],
        cause=effects.task[counted].astype(np.int64) * len(Moment) + effects.moment[counted],
        memory_class=effects.memory_class[counted],
        size=change[counted],
    )
    return tuple(_steps(changes.part(low, high)) for low, high in pairwise(bounds))


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """What changes on a device, or on all, in the order of its lane."""

    time: Floats
    cause: Ints
    """One number for each moment of each task; below 0 for what holds from before the run."""
    memory_class: Ints
    size: Ints

    def part(self, low: int, high: int) -> _Changes:
        return _Changes(self.time[low:high], self.cause[low:high], self.memory_class[low:high], self.size[low:high])


def bytes_of(effects: MemoryEffects, unit_bytes: UnitBytes, num_micro_batches: int) -> Ints:
    """Return the bytes that each effect takes (positive) or gives back, rounded per unit so that both are the same number."""
    table = np.stack([_column(unit_bytes, unit) for unit in Unit])
    size = table[effects.unit, effects.stage]
    if unit_bytes.micro_batch_scale is not None:
        scale = unit_bytes.micro_batch_scale[effects.micro_batch % num_micro_batches]
        # -1: weights and the like, which no micro-batch scales
        size = np.where(effects.micro_batch >= 0, size * scale, size)
    change: Ints = np.rint(size).astype(np.int64) * effects.units
    return change


def _column(unit_bytes: UnitBytes, unit: Unit) -> Floats:
    """Return the bytes of a unit by stage; what is not stated is 0."""
    column: Floats | None = getattr(unit_bytes, unit.name.lower())
    return np.zeros_like(unit_bytes.activations) if column is None else column


def _times_of(effects: MemoryEffects, spans: Spans) -> Floats:
    by_moment = {Moment.START: spans.start, Moment.RELEASE: spans.release, Moment.END: spans.end}
    time = np.zeros(len(effects))
    for moment, of_task in by_moment.items():
        chosen = np.flatnonzero((effects.moment == moment) & (effects.task != RUN_START))
        time[chosen] = of_task[effects.task[chosen]]
    return time


def _steps(changes: _Changes) -> MemorySteps:
    """Add up the changes of one device; what one moment of one task takes and gives back is one step."""
    # stable: at equal times the lane's order stays, so what one task frees is there for the next
    order = np.argsort(changes.time, kind="stable")
    time, cause = changes.time[order], changes.cause[order]
    new = np.empty(len(order), bool)
    new[:1] = cause[:1] >= 0  # step 0 is what the device holds before its first task
    new[1:] = (time[1:] != time[:-1]) | (cause[1:] != cause[:-1])
    step = np.cumsum(new)
    num_steps = int(step[-1]) + 1 if len(step) else 1
    cell = step * len(CLASSES) + changes.memory_class[order]
    #   change by (step, class)      then the running sum down the steps: what is held
    #   step 0   +w  .  +g  .        what holds from before the run
    #   step 1   .   .  .  +a
    by_class = np.bincount(cell, weights=changes.size[order], minlength=num_steps * len(CLASSES)).reshape(num_steps, len(CLASSES))
    return MemorySteps(np.concatenate(([0.0], time[new])), by_class.cumsum(axis=0).astype(np.int64))
