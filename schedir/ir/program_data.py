"""What a program says: the ordered actions of all devices, before anything is derived from them.

Actions are held as arrays over all devices, device after device, so that a million of them cost megabytes and are
lowered by array operations. `program.order(device)` shows them as objects. How programs are built, and how they look as text and
in a notebook, is told by `Program`, which stands on the modules that print and draw this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.arrays import Ints
from schedir.ir.origin import Origin
from schedir.ir.pairs import NO_PAIRS, Pairs
from schedir.ir.weights import WeightRule


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProgramData:
    """What a program says, as arrays: `Program` is built from more than these, and shows itself."""

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
