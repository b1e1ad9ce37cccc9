"""The communication of a torch CSV as it was read: columns over all cells, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from schedir.errors import FormatError
from schedir.interop.torch_cells import Communication
from schedir.ir.arrays import Ints

WORDS = tuple(Communication)
"""Sends and receives come first, every receive behind its send."""

NUMBER_OF: dict[str, int] = {what: number for number, what in enumerate(WORDS)}


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCells:
    """The communication of one device, in order, as it was read; int64 arrays with one value for each cell."""

    what: Ints
    """Number of the word in `Communication`."""
    stages: Ints
    micro_batches: Ints
    """-1 where it concerns the whole stage."""
    computed: Ints
    """Actions before it."""
    columns: Ints
    """1-based column of the cell."""

    @classmethod
    def none(cls) -> DeviceCells:
        """Return those of a device that only computes."""
        return cls(*(np.zeros(0, np.int64) for _ in range(5)))


@dataclass(frozen=True, slots=True, eq=False)
class Communications:
    """All communication of a file, device after device, in the order in which it stands there."""

    device: Ints
    what: Ints
    """Number of the word in `Communication`."""
    stage: Ints
    micro_batch: Ints
    """-1 where it concerns the whole stage."""
    computed: Ints
    """Actions of its device before it."""
    column: Ints
    locate: Callable[[int, int], str]
    """(device, column) -> `file.csv:2: device 1: cell 7: `."""

    @classmethod
    def of(cls, devices: Sequence[DeviceCells], locate: Callable[[int, int], str]) -> Communications:
        """Build from the cells of every device."""
        rows = [(each.what, each.stages, each.micro_batches, each.computed, each.columns) for each in devices]
        what, stage, micro_batch, computed, column = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        device = np.repeat(np.arange(len(devices)), [len(cells.what) for cells in devices])
        return cls(device, what, stage, micro_batch, computed, column, locate)

    def __len__(self) -> int:
        return len(self.what)

    def text(self, at: int) -> str:
        """Return a cell as it is written."""
        j = int(self.micro_batch[at])
        return f"{self.stage[at]}{WORDS[self.what[at]]}{'' if j < 0 else j}"

    def fault(self, at: int, message: str) -> FormatError:
        """Return the error for a cell: its place, its text, what is wrong."""
        return FormatError(f"{self.locate(int(self.device[at]), int(self.column[at]))}{self.text(at)} {message}")
