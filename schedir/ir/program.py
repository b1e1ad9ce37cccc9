"""Programs: the ordered actions of all devices, before anything is derived from them.

Actions are held as arrays over all devices, device after device, so that a million of them cost megabytes and are
lowered by array operations. `program.order(device)` shows them as objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict, Unpack

import numpy as np

from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.entries import Columns, Entries
from schedir.ir.origin import Origin
from schedir.ir.pairs import NO_PAIRS, Pairs
from schedir.ir.weights import WeightRule


class ProgramShape(TypedDict):
    """What every way to build a program is told beside its orders."""

    num_stages: int
    num_micro_batches: int
    num_mini_batches: NotRequired[int]
    """1 if not given."""
    weights: NotRequired[WeightRule | None]
    """`latest` if not given."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Program:
    """The orders of all devices with the shape and weight rule they are meant for."""

    name: str
    """Name of the schedule, or of the file it came from."""
    num_stages: int
    num_devices: int
    num_micro_batches: int
    """m: micro-batches per update and replica."""
    num_mini_batches: int
    """N: mini-batches in this program, at least 1."""
    weights: WeightRule
    """Which weights actions read."""
    device_start: Ints
    """int64 (num_devices + 1): entries of device d are rows device_start[d] … device_start[d + 1]."""
    kind: Ints
    """int8 per entry: a `Kind`."""
    stage: Ints
    """int32 per entry; of an overlapped entry its forward's."""
    micro_batch: Ints
    """int32 per entry; of an overlapped entry its forward's."""
    pairs: Pairs = NO_PAIRS
    """Backward halves of overlapped entries."""
    origin: Origin | None = None
    """The file that it was read from; programs are equal whatever their origin."""

    @classmethod
    def from_entries(
        cls,
        name: str,
        entries: Entries,
        *,
        num_stages: int,
        num_micro_batches: int,
        num_mini_batches: int = 1,
        weights: WeightRule | None = None,
    ) -> Program:
        """Build from columns that are there already."""
        ends = np.cumsum(entries.lengths)
        kind, stage, micro_batch = entries.columns
        return cls(
            name=name,
            num_stages=num_stages,
            num_devices=len(ends),
            num_micro_batches=num_micro_batches,
            num_mini_batches=num_mini_batches,
            weights=weights or WeightRule(),
            device_start=frozen_array(np.concatenate(([0], ends)), np.int64),
            kind=frozen_array(kind, np.int8),
            stage=frozen_array(stage, np.int32),
            micro_batch=frozen_array(micro_batch, np.int32),
            pairs=entries.pairs,
        )

    @classmethod
    def from_arrays(cls, name: str, orders: Sequence[Columns], **shape: Unpack[ProgramShape]) -> Program:
        """Build from one (kind, stage, micro_batch) triple of equally long arrays (or scalars to broadcast) per device."""
        return cls.from_entries(name, Entries.of_arrays(orders), **shape)

    @classmethod
    def from_matrix(cls, name: str, order: Columns, **shape: Unpack[ProgramShape]) -> Program:
        """Build from (kind, stage, micro_batch) matrices with a row per device (or shapes that broadcast to it).

        Matrices that hold mini-batch 0 only are repeated for every other mini-batch.
        """
        repeated = {"num_micro_batches": shape["num_micro_batches"], "num_mini_batches": shape.get("num_mini_batches", 1)}
        return cls.from_entries(name, Entries.of_matrix(order, **repeated), **shape)

    @classmethod
    def from_orders(cls, name: str, orders: Sequence[Iterable[Entry]], **shape: Unpack[ProgramShape]) -> Program:
        """Build from one sequence of actions and overlapped pairs per device."""
        return cls.from_entries(name, Entries.of_orders(orders), **shape)

    @property
    def num_entries(self) -> int:
        """Entries over all devices; an overlapped pair counts once."""
        return len(self.kind)

    @property
    def total_micro_batches(self) -> int:
        """Micro-batches of the whole program: num_micro_batches x num_mini_batches."""
        return self.num_micro_batches * self.num_mini_batches

    @property
    def stages_per_device(self) -> int:
        """Most stages that one device hosts."""
        # entries count, not pairs: a device that hosts a stage runs its forwards, and a pair's own stage is its forward's
        hosted = np.unique(self.device_of_entry().astype(np.int64) * self.num_stages + self.stage) // self.num_stages
        return int(np.bincount(hosted).max()) if len(hosted) else 0

    def device_of_entry(self) -> Ints:
        """Device of each entry, int32."""
        return np.arange(self.num_devices, dtype=np.int32).repeat(self.device_start[1:] - self.device_start[:-1])

    def entry(self, row: int) -> Entry:
        """Show one entry."""
        first = Action(int(self.stage[row]), Kind(self.kind[row]), int(self.micro_batch[row]))
        if first.kind is not Kind.OVERLAPPED:
            return first
        k, pairs = int(np.searchsorted(self.pairs.row, row)), self.pairs
        backward = Action(int(pairs.stage[k]), Kind(pairs.kind[k]), int(pairs.micro_batch[k]))
        return Overlapped(Action(first.stage, Kind.FORWARD, first.micro_batch), backward)

    def order(self, device: int) -> tuple[Entry, ...]:
        """Show the order of one device as actions and overlapped pairs."""
        # pairs are sorted by entry: those of one device are a range of them
        first, last = int(self.device_start[device]), int(self.device_start[device + 1])
        low, high = np.searchsorted(self.pairs.row, (first, last))
        backward = {
            int(self.pairs.row[k]): Action(int(self.pairs.stage[k]), Kind(self.pairs.kind[k]), int(self.pairs.micro_batch[k]))
            for k in range(low, high)
        }
        rows = zip(
            range(first, last),
            self.kind[first:last].tolist(),
            self.stage[first:last].tolist(),
            self.micro_batch[first:last].tolist(),
            strict=True,
        )
        return tuple(
            Overlapped(Action(stage, Kind.FORWARD, micro_batch), backward[row])
            if kind == Kind.OVERLAPPED
            else Action(stage, Kind(kind), micro_batch)
            for row, kind, stage, micro_batch in rows
        )

    def orders(self) -> tuple[tuple[Entry, ...], ...]:
        """Show the orders of all devices."""
        return tuple(self.order(device) for device in range(self.num_devices))

    def _key(self) -> tuple[object, ...]:
        return (
            self.name,
            self.num_stages,
            self.num_devices,
            self.num_micro_batches,
            self.num_mini_batches,
            self.weights,
            *(array.tobytes() for array in (self.device_start, self.kind, self.stage, self.micro_batch)),
            *(array.tobytes() for array in (self.pairs.row, self.pairs.kind, self.pairs.stage, self.pairs.micro_batch)),
        )

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Program) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        from schedir.ir.notation.text import print_program  # noqa: PLC0415 - the text form stands on this module

        return print_program(self)

    def _repr_svg_(self) -> str:
        from schedir.ir.notation.pictures import program_svg  # noqa: PLC0415 - pictures stand on this module

        return program_svg(self)

    def __repr__(self) -> str:
        return (
            f"<Program {self.name}: {self.num_devices} devices, {self.num_stages} stages, "
            f"{self.num_mini_batches} x {self.num_micro_batches} micro-batches, weights {self.weights}>"
        )
