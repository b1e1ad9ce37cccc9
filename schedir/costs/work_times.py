"""Times of work before there is a graph, for schedules that choose their order by what it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.costs.stage_seconds import StageSeconds
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class WorkTimes:
    """What a cost model says of the work of one program, uncompiled and without recomputation."""

    seconds: StageSeconds
    """By size, kind and stage."""
    transfer: Floats
    """float64 (num_stages): latency of a hand-over from the stage to another device."""
    gap: float = 0.0
    """Dispatch gap before every task of a device that takes time."""

    def gaps(self, seconds: Floats) -> Floats:
        """Return the gap before work of these durations: none before what takes no time, as `TaskTimes` has it."""
        return np.where(seconds > 0, self.gap, 0.0)

    def typical(self, kind: Kind) -> list[float]:
        """Return the seconds of a kind on every stage, over the sizes of a mini-batch's micro-batches their mean."""
        row = self.seconds.row
        found = self.seconds.seconds[0, kind] if row is None else self.seconds.seconds[row, kind].mean(axis=0)
        return [float(value) for value in found]

    def of(self, work: tuple[Ints, Ints, Ints], *, num_micro_batches: int) -> Floats:
        """Return the seconds of (kind, stage, micro-batch), one for each row of the three columns.

        Work stands in the order in which each device runs it, and every stage on one device.
        """
        kind, stage, micro_batch = (np.asarray(column, np.int64) for column in work)
        table, mini_batch = self.seconds, micro_batch // num_micro_batches
        row = np.zeros_like(kind) if table.row is None else table.row[micro_batch % num_micro_batches]
        found: Floats = table.seconds[row, kind, stage]
        if table.first is not None:
            # work stands in each device's order, so the first row of a key is the one that runs on cold caches
            key = (mini_batch * len(Kind) + kind) * table.seconds.shape[2] + stage
            cold = np.unique(key, return_index=True)[1]
            found[cold] = table.first[row[cold], kind[cold], stage[cold]]
        return found
