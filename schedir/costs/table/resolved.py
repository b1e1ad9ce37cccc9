"""The costs of all stages as arrays, for one number of stages, one way of recomputation and one set of micro-batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.costs.stage_seconds import StageSeconds
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.sample_table import SampleTable, samples_of
from schedir.costs.table.stage_arrays import bytes_of, seconds_of, times_of
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """Row 0 of all arrays is for the costs' own micro-batch size; further rows are for sizes that differ from it."""

    seconds: StageSeconds
    """By size, kind and stage."""
    samples: SampleTable
    """Of the costs' own size; as factors they hold for the others too."""
    bytes: tuple[dict[str, Floats], ...]
    """By size: bytes by name, each float64 (num_stages)."""
    scale: tuple[float, ...]
    """By size: factor on what grows with the samples of a micro-batch."""
    selective: tuple[bool, ...]
    """By stage: it recomputes in part only."""
    unstated: frozenset[Kind]
    """Of updates and predictions those that no stage states."""
    has_gaps: bool
    """Some kind of work is not stated for some stage."""

    @property
    def row(self) -> Ints | None:
        """int32 (num_micro_batches): the row of each micro-batch of a mini-batch; None: row 0 throughout."""
        return self.seconds.row

    def row_of(self, micro_batch: Ints) -> Ints:
        """Return the row of micro-batches, numbered within their mini-batch."""
        return np.zeros(len(micro_batch), np.int32) if self.row is None else self.row[micro_batch]

    def medians(self, kind: Kind) -> list[float | None]:
        """Return the seconds of a kind on every stage, None where they are not stated."""
        return [None if np.isnan(second) else second for second in self.seconds.seconds[0, kind].tolist()]


def resolve(stages: Sequence[Sequence[PieceCosts]], selective: tuple[bool, ...], row: Sequence[int] | None = None) -> Resolved:
    """Return the arrays of the costs of all stages, given for each size; `row` is the size of each micro-batch."""
    # [size][stage][kind] -> WorkTime, then float64 (2, num_sizes, len(Kind), num_stages): medians, and times of firsts
    times = [times_of(pieces, selective) for pieces in stages]
    seconds = np.stack([seconds_of(by_stage) for by_stage in times], axis=1)
    amounts = tuple(bytes_of(pieces) for pieces in stages)
    # a pair that is not stated takes as long as its two actions: no gap
    stated = np.delete(seconds[0], Kind.OVERLAPPED, axis=1)
    optional = (Kind.UPDATE, Kind.PREDICT)
    return Resolved(
        seconds=StageSeconds(
            seconds[0],
            # most tables state no firsts: without them `durations` spares the search for the first tasks
            first=None if np.array_equal(seconds[0], seconds[1], equal_nan=True) else seconds[1],
            row=None if row is None else np.array(row, np.int32),
        ),
        samples=samples_of(times[0]),
        bytes=amounts,
        scale=tuple(_growth(amounts[0], larger) for larger in amounts),
        selective=selective,
        unstated=frozenset(kind for kind in optional if all(getattr(piece, kind.word) is None for piece in stages[0])),
        has_gaps=bool(np.isnan(stated).any()),
    )


def _growth(base: dict[str, Floats], larger: dict[str, Floats]) -> float:
    """Return how much larger activations are, or outputs where no activations are stated.

    Memory is counted in units with one factor for each size, so one kind of bytes has to stand for all that grow.
    """
    for name in ("activations", "output", "boundary"):
        before, after = np.nansum(base[name]), np.nansum(larger[name])
        if before:
            return float(after / before)
    return 1.0
