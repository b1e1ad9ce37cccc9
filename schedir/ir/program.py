"""Programs: the ordered actions of all devices, before anything is derived from them.

Actions are held as arrays over all devices, device after device, so that a million of them cost megabytes and are
lowered by array operations. `program.order(device)` shows them as objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.origin import Origin
from schedir.ir.pairs import Pairs
from schedir.ir.weights import WeightRule


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
    pairs: Pairs = field(default_factory=Pairs.of)
    """Backward halves of overlapped entries."""
    origin: Origin | None = None
    """The file that it was read from; programs are equal whatever their origin."""

    @classmethod
    def from_arrays(
        cls,
        name: str,
        orders: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike]],
        *,
        num_stages: int,
        num_micro_batches: int,
        num_mini_batches: int = 1,
        weights: WeightRule | None = None,
    ) -> Program:
        """Build from one (kind, stage, micro_batch) triple of equally long arrays (or scalars to broadcast) per device."""
        columns = [np.broadcast_arrays(*(np.atleast_1d(column) for column in order)) for order in orders]
        lengths = [len(kinds) for kinds, _, _ in columns]
        return cls(
            name=name,
            num_stages=num_stages,
            num_devices=len(orders),
            num_micro_batches=num_micro_batches,
            num_mini_batches=num_mini_batches,
            weights=weights or WeightRule(),
            device_start=frozen_array(np.concatenate(([0], np.cumsum(lengths))), np.int64),
            kind=frozen_array(np.concatenate([column[0] for column in columns]), np.int8),
            stage=frozen_array(np.concatenate([column[1] for column in columns]), np.int32),
            micro_batch=frozen_array(np.concatenate([column[2] for column in columns]), np.int32),
        )

    @classmethod
    def from_matrix(
        cls,
        name: str,
        order: tuple[ArrayLike, ArrayLike, ArrayLike],
        *,
        num_stages: int,
        num_micro_batches: int,
        num_mini_batches: int = 1,
        weights: WeightRule | None = None,
    ) -> Program:
        """Build from (kind, stage, micro_batch) matrices with a row per device (or shapes that broadcast to it).

        Matrices that hold mini-batch 0 only are repeated for every other mini-batch.
        """
        kind, stage, micro_batch = (np.asarray(column) for column in order)
        shape = np.broadcast(kind, stage, micro_batch).shape
        num_devices, length = shape
        #   (devices, length) of mini-batch 0  ->  (devices, mini-batches, length), micro-batches moved on by m each time;
        #   laid out row by row that is device after device, each with its mini-batches one behind the other
        first = None
        if num_mini_batches > 1 and micro_batch.max() < num_micro_batches:
            first = num_micro_batches * np.arange(num_mini_batches, dtype=np.int32)[:, None]
            shape = (num_devices, num_mini_batches, length)
            length *= num_mini_batches
            kind, stage, micro_batch = (np.broadcast_to(column, shape[::2])[:, None, :] for column in (kind, stage, micro_batch))
        columns = [np.empty(shape, dtype) for dtype in (np.int8, np.int32, np.int32)]
        columns[0][...], columns[1][...] = kind, stage
        columns[2][...] = micro_batch if first is None else micro_batch + first
        return cls(
            name=name,
            num_stages=num_stages,
            num_devices=num_devices,
            num_micro_batches=num_micro_batches,
            num_mini_batches=num_mini_batches,
            weights=weights or WeightRule(),
            device_start=frozen_array(np.arange(num_devices + 1) * length, np.int64),
            kind=frozen_array(columns[0].reshape(-1), np.int8),
            stage=frozen_array(columns[1].reshape(-1), np.int32),
            micro_batch=frozen_array(columns[2].reshape(-1), np.int32),
        )

    @classmethod
    def from_orders(
        cls,
        name: str,
        orders: Sequence[Iterable[Entry]],
        *,
        num_stages: int,
        num_micro_batches: int,
        num_mini_batches: int = 1,
        weights: WeightRule | None = None,
    ) -> Program:
        """Build from one sequence of actions and overlapped pairs per device."""
        entries = [list(order) for order in orders]
        flat = [entry for order in entries for entry in order]
        firsts = [entry.forward if isinstance(entry, Overlapped) else entry for entry in flat]
        paired = [(row, entry.backward) for row, entry in enumerate(flat) if isinstance(entry, Overlapped)]
        return cls(
            name=name,
            num_stages=num_stages,
            num_devices=len(entries),
            num_micro_batches=num_micro_batches,
            num_mini_batches=num_mini_batches,
            weights=weights or WeightRule(),
            device_start=frozen_array(np.cumsum([0, *map(len, entries)]), np.int64),
            kind=frozen_array([Kind.OVERLAPPED if isinstance(entry, Overlapped) else entry.kind for entry in flat], np.int8),
            stage=frozen_array([action.stage for action in firsts], np.int32),
            micro_batch=frozen_array([action.micro_batch for action in firsts], np.int32),
            pairs=Pairs.of(
                [row for row, _ in paired],
                kind=[action.kind for _, action in paired],
                stage=[action.stage for _, action in paired],
                micro_batch=[action.micro_batch for _, action in paired],
            ),
        )

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
        from schedir.ir.text import print_program  # noqa: PLC0415 - the text form stands on this module

        return print_program(self)

    def _repr_svg_(self) -> str:
        from schedir.ir.pictures import program_svg  # noqa: PLC0415 - pictures stand on this module

        return program_svg(self)

    def __repr__(self) -> str:
        return (
            f"<Program {self.name}: {self.num_devices} devices, {self.num_stages} stages, "
            f"{self.num_mini_batches} x {self.num_micro_batches} micro-batches, weights {self.weights}>"
        )
