"""Programs: how they are built from orders in any form, compared, and shown. What they say stands in `program_data`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict, Unpack

import numpy as np

from schedir.ir.action import Entry
from schedir.ir.arrays import frozen_array
from schedir.ir.entries import Columns, Entries
from schedir.ir.notation.order_picture import program_svg
from schedir.ir.notation.printing import print_program
from schedir.ir.program_data import ProgramData
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
class Program(ProgramData):
    """The orders of all devices with the shape and weight rule they are meant for."""

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
        return print_program(self)

    def _repr_svg_(self) -> str:
        return program_svg(self)

    def __repr__(self) -> str:
        return (
            f"<Program {self.name}: {self.num_devices} devices, {self.num_stages} stages, "
            f"{self.num_mini_batches} x {self.num_micro_batches} micro-batches, weights {self.weights}>"
        )
