"""What each device holds over time: bytes where a timeline knows them, else how many activations are alive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from plots.text import BYTES, DisplayUnit, unit_for
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.timeline.timeline import MemoryClass, Timeline

LIMIT_IN_SIGHT = 2.0
"""A limit is drawn if it is at most this many times the largest amount held."""
COUNT = DisplayUnit(1.0, "")
ENDS_ACTIVATION = (Kind.BACKWARD, Kind.WEIGHT_GRAD)
"""Kinds whose end frees what the forward kept."""


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Amounts held by all devices, as steps. Times are seconds from the run's first start."""

    name: str
    """What is counted."""
    unit: DisplayUnit
    time: tuple[Floats, ...]
    """Per device: when the amount changes."""
    amount: tuple[Floats, ...]
    """Per device: bytes, or live activations, from that time on."""
    limit: tuple[float | None, ...]
    """Per device: bytes that it may hold, None if unlimited or unknown."""
    by_class: tuple[Floats, ...] | None = None
    """Per device: bytes of each class from that time on, (num_steps, num_classes); None for numbers of activations."""

    def peak(self, device: int) -> float:
        """Return the most that a device holds."""
        return float(self.amount[device].max(initial=0))

    def show(self, amount: float) -> str:
        """Return an amount as text."""
        return self.unit.show(amount).rstrip()

    def classes(self) -> list[MemoryClass]:
        """Return the classes that hold bytes at any time; none for numbers of activations."""
        if self.by_class is None:
            return []
        most = np.max([part.max(axis=0, initial=0.0) for part in self.by_class], axis=0)
        return [name for name, amount in zip(MemoryClass, most.tolist(), strict=True) if amount]

    def between(self, low: float, high: float) -> Held:
        """Return what is held between two times, in seconds from the run's first start; times then count from `low`."""
        inside = [np.flatnonzero((time > low) & (time < high)) for time in self.time]
        before = [int(np.searchsorted(time, low, side="right")) for time in self.time]

        def cut(columns: tuple[Floats, ...]) -> tuple[Floats, ...]:
            # what was held at the cut goes on from there
            return tuple(
                np.concatenate((part[k - 1 : k] if k else np.zeros((1, *part.shape[1:])), part[rows]))
                for part, k, rows in zip(columns, before, inside, strict=True)
            )

        times = tuple(np.append(0.0, time[rows] - low) for time, rows in zip(self.time, inside, strict=True))
        by_class = None if self.by_class is None else cut(self.by_class)
        return replace(self, time=times, amount=cut(self.amount), by_class=by_class)


def begin_of(timeline: Timeline) -> float:
    """Return the time, in seconds, that pictures count from: the first start of any task."""
    return float(np.nanmin(timeline.start))


def held_memory(timeline: Timeline) -> Held:
    """Return the bytes that devices hold, or, where a timeline carries none, their live activations.

    Live activations are (stage, micro-batch) pairs, alive from the start of F to the end of B (of W where split).
    """
    if timeline.memory is None:
        return _live_activations(timeline)
    begin = begin_of(timeline)
    time = tuple(np.maximum(steps.time - begin, 0.0) for steps in timeline.memory)  # pictures begin with the first task
    amount = tuple(steps.total.astype(np.float64) for steps in timeline.memory)
    by_class = tuple(steps.by_class.astype(np.float64) for steps in timeline.memory)
    largest = max((float(part.max(initial=0)) for part in amount), default=0.0)
    return Held("memory", unit_for(largest, BYTES), time, amount, limits(timeline), by_class)


def largest_held(panels: Iterable[Held]) -> dict[str, float]:
    """Return the most that any device holds, by what is counted: bytes and numbers of activations share no scale."""
    largest: dict[str, float] = {}
    for held in panels:
        largest[held.name] = max(largest.get(held.name, 0.0), *map(held.peak, range(len(held.amount))))
    return largest


def limits(timeline: Timeline) -> tuple[float | None, ...]:
    """Return the bytes that each device may hold, None where no limit is known."""
    given = timeline.meta.get("limit_bytes")
    return (None,) * timeline.graph.program.num_devices if given is None else tuple(map(float, given))


def _live_activations(timeline: Timeline) -> Held:
    graph, begin = timeline.graph, begin_of(timeline)
    recorded = timeline.recorded
    born = np.flatnonzero(recorded & np.isin(graph.kind, (Kind.FORWARD, Kind.OVERLAPPED)))
    freed = np.flatnonzero(recorded & np.isin(graph.kind, ENDS_ACTIVATION))
    pairs = graph.pairs.task[np.isin(graph.pairs.kind, ENDS_ACTIVATION)]
    freed = np.concatenate((freed, pairs[recorded[pairs]]))
    device = np.concatenate((graph.device[born], graph.device[freed]))
    time = np.concatenate((timeline.start[born], timeline.end[freed])) - begin
    change = np.repeat((1, -1), (len(born), len(freed)))
    order = np.lexsort((change, time, device))  # what ends at a time makes room for what starts then
    times, amounts = _by_device(device[order], time[order], change[order], count=graph.program.num_devices)
    return Held("live activations", COUNT, times, amounts, (None,) * graph.program.num_devices)


def _by_device(device: Ints, time: Floats, change: Ints, *, count: int) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    cuts = np.searchsorted(device, np.arange(1, count))
    amounts = tuple(np.cumsum(part).astype(np.float64) for part in np.split(change, cuts))
    return tuple(np.split(time, cuts)), amounts
