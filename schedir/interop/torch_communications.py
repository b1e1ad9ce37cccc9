"""The communication of a torch CSV as it was read: columns over all cells, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from schedir.errors import FormatError
from schedir.interop.torch_cells import Communication
from schedir.ir.program import Ints

WORDS = tuple(Communication)
"""Sends and receives come first, every receive behind its send."""

NUMBER_OF: dict[str, int] = {what: number for number, what in enumerate(WORDS)}


@dataclass(frozen=True, slots=True)
class DeviceCells:
    """The communication of one device, in order, as it was read."""

    words: list[str] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    micro_batches: list[int] = field(default_factory=list)
    """-1 where it concerns the whole stage."""
    computed: list[int] = field(default_factory=list)
    """Actions before it."""
    columns: list[int] = field(default_factory=list)


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
        return cls(
            np.repeat(np.arange(len(devices)), [len(cells.words) for cells in devices]),
            _column([NUMBER_OF[word] for cells in devices for word in cells.words]),
            _column([stage for cells in devices for stage in cells.stages]),
            _column([j for cells in devices for j in cells.micro_batches]),
            _column([number for cells in devices for number in cells.computed]),
            _column([column for cells in devices for column in cells.columns]),
            locate,
        )

    def __len__(self) -> int:
        return len(self.what)

    def text(self, at: int) -> str:
        """Return a cell as it is written."""
        j = int(self.micro_batch[at])
        return f"{self.stage[at]}{WORDS[self.what[at]]}{'' if j < 0 else j}"

    def fault(self, at: int, message: str) -> FormatError:
        """Return the error for a cell: its place, its text, what is wrong."""
        return FormatError(f"{self.locate(int(self.device[at]), int(self.column[at]))}{self.text(at)} {message}")


def _column(values: list[int]) -> Ints:
    return np.array(values, np.int64)
