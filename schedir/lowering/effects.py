"""What tasks take and give back of memory, as arrays of counts, and the builder that brings them into lane order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from schedir.ir.arrays import Ints, frozen_array
from schedir.timeline.timeline import MemoryClass


class Unit(IntEnum):
    """What is counted; `schedir.costs.model.UnitBytes` has a column of the same name for each."""

    WEIGHTS = 0
    GRADIENTS = 1
    OPTIMIZER = 2
    ACTIVATIONS = 3
    BOUNDARY = 4
    RECOMPUTED = 5
    OUTPUT = 6
    INPUT_GRADIENT = 7
    WORKSPACE = 8
    FREED_ACTIVATIONS = 9
    FREED_BOUNDARY = 10
    FREED_RECOMPUTED = 11
    SKIP = 12
    TIED_WEIGHTS = 13
    TIED_OPTIMIZER = 14
    PREDICTOR = 15


class Space(IntEnum):
    """Which memory of a device holds it."""

    DEVICE = 0
    HOST = 1


class Moment(IntEnum):
    """When, in a task's life."""

    START = 0
    RELEASE = 1
    """Its lane is free again: a transfer has left its sender."""
    END = 2


CLASSES = tuple(MemoryClass)
"""A class is stored as its place in this tuple, which is its column in `MemorySteps.by_class`."""

RUN_START = -1
"""The task of effects that hold from before the run."""

_SLOTS = 4  # places of a task: before it (a receive buffer), its start, its end, behind it (a send buffer)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MemoryEffects:
    """Takings and givings of all tasks: one row each, device after device.

    The rows of a device are in its lane's order, so that a stable sort by time keeps what one task frees before what the
    next one takes, and nothing becomes negative where times are equal.
    """

    device_start: Ints
    """int64 (num_devices + 1): rows of device d are device_start[d] … device_start[d + 1]."""
    task: Ints
    """int32: whose moment it is; RUN_START where it holds from before the run."""
    moment: Ints
    """int8: a `Moment`."""
    memory_class: Ints
    """int8: place in CLASSES."""
    unit: Ints
    """int8: a `Unit`."""
    stage: Ints
    """int32: the stage whose unit it is."""
    micro_batch: Ints
    """int32: the micro-batch whose size scales the unit; -1 where none does."""
    units: Ints
    """int8: how many are taken (positive) or given back."""
    space: Space = Space.DEVICE
    """All that is lowered today lies in device memory."""

    def __len__(self) -> int:
        return len(self.task)


@dataclass(frozen=True, slots=True, eq=False)
class When:
    """A moment of tasks, and its place among the moments of the compute lane whose device feels it."""

    task: Ints
    moment: Moment
    place: Ints

    @classmethod
    def starts(cls, task: Ints) -> When:
        """When compute tasks start."""
        return cls(task, Moment.START, task * _SLOTS + 1)

    @classmethod
    def ends(cls, task: Ints) -> When:
        """When compute tasks end."""
        return cls(task, Moment.END, task * _SLOTS + 2)

    @classmethod
    def sent(cls, transfer: Ints, maker: Ints) -> When:
        """When transfers have left the device of the compute tasks that made them."""
        return cls(transfer, Moment.RELEASE, maker * _SLOTS + 3)

    @classmethod
    def under_way(cls, transfer: Ints, reader: Ints) -> When:
        """When transfers start to fill a buffer on the device of the compute tasks that read them."""
        return cls(transfer, Moment.START, reader * _SLOTS)


class EffectBuilder:
    """Collects what is taken and given back, then sorts it by lane."""

    def __init__(self) -> None:
        self._groups: list[tuple[Ints, ...]] = []

    def hold(self, what: tuple[MemoryClass, Unit], owner: tuple[Ints, Ints], *, taken: When, given: When) -> None:
        """Take one unit of each owner (stage, micro-batch) when `taken` and give it back when `given`."""
        self._add(what, owner, taken, units=1)
        self._add(what, owner, given, units=-1)

    def keep(self, what: tuple[MemoryClass, Unit], stage: Ints, first: Ints) -> None:
        """Hold one unit of each stage from before the run; `first` is the first task of its device's lane."""
        self._from_the_start(what, stage, first, units=1)

    def spare(self, what: tuple[MemoryClass, Unit], stage: Ints, first: Ints) -> None:
        """Take back what `keep` holds of each stage, but another stage of the device holds already."""
        self._from_the_start(what, stage, first, units=-1)

    def _from_the_start(self, what: tuple[MemoryClass, Unit], stage: Ints, first: Ints, *, units: int) -> None:
        nobody = np.full(len(stage), RUN_START)
        self._add(what, (stage, nobody), When(nobody, Moment.START, first * _SLOTS), units=units)

    def _add(self, what: tuple[MemoryClass, Unit], owner: tuple[Ints, Ints], when: When, *, units: int) -> None:
        constants = (when.moment, CLASSES.index(what[0]), what[1], units)
        # several rows for every task: the smallest types that hold them
        numbers = (column.astype(np.int32, copy=False) for column in (when.task, *owner))
        columns = (np.full(len(when.task), value, np.int8) for value in constants)
        self._groups.append((when.place, *numbers, *columns))

    def sorted(self, lane_start: Ints) -> MemoryEffects:
        """Return all effects; `lane_start` are the first tasks of the compute lanes and the end of the last."""
        place, *columns = (np.concatenate(parts) for parts in zip(*self._groups, strict=True))
        # stable: what was added first stays first where places are equal
        order = np.argsort(place, kind="stable")
        task, stage, micro_batch, moment, memory_class, unit, units = (column[order] for column in columns)
        return MemoryEffects(
            device_start=frozen_array(np.searchsorted(place[order], lane_start * _SLOTS), np.int64),
            task=frozen_array(task, np.int32),
            moment=frozen_array(moment, np.int8),
            memory_class=frozen_array(memory_class, np.int8),
            unit=frozen_array(unit, np.int8),
            stage=frozen_array(stage, np.int32),
            micro_batch=frozen_array(micro_batch, np.int32),
            units=frozen_array(units, np.int8),
        )
