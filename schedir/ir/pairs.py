"""The backward halves of overlapped pairs: beside the entries of a program, and beside the tasks of a graph.

Nearly all entries and tasks are single actions. So the columns of a pair say what its forward is, and its backward stands in a
table of its own, which is empty for most schedules and costs them nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from schedir.ir.action import Action
from schedir.ir.arrays import Ints, frozen_array


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pairs:
    """The backward halves of overlapped entries; row k belongs to entry `row[k]`, whose own columns are the forward."""

    row: Ints
    """Index of the overlapped entry, increasing."""
    kind: Ints
    """BACKWARD or INPUT_GRAD."""
    stage: Ints
    micro_batch: Ints

    @classmethod
    def of(cls, row: ArrayLike = (), *, kind: ArrayLike = (), stage: ArrayLike = (), micro_batch: ArrayLike = ()) -> Pairs:
        """Build from anything array-like, each of the same length."""
        return cls(
            frozen_array(row, np.int64),
            frozen_array(kind, np.int8),
            frozen_array(stage, np.int32),
            frozen_array(micro_batch, np.int32),
        )

    @classmethod
    def of_actions(cls, halves: Sequence[tuple[int, Action]]) -> Pairs:
        """Build from (entry, backward half) of every pair, by entry."""
        return cls.of(
            [row for row, _ in halves],
            kind=[action.kind for _, action in halves],
            stage=[action.stage for _, action in halves],
            micro_batch=[action.micro_batch for _, action in halves],
        )

    def __len__(self) -> int:
        return len(self.row)


NO_PAIRS = Pairs.of()
"""Of programs that overlap nothing."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PairReads:
    """Backward halves of overlapped tasks: row k is the second action of task `task[k]`."""

    task: Ints
    """int32, increasing."""
    kind: Ints
    stage: Ints
    micro_batch: Ints
    version: Ints
    horizon: Ints
    predicted_by: Ints

    def __len__(self) -> int:
        return len(self.task)
