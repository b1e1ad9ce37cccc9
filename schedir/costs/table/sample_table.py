"""Samples of every kind on every stage, and which of them were measured together.

cell (kind, stage)     0F              1F       0U       1U      2 samples of repeat 0 and 1 of repeat 1; 1 and 1; none
factors              a a b            c d       1        1       one flat array, so that a draw is one look-up
start, count         repeat 0:  0,2   3,1       5,1      6,1
                     repeat 1:  2,1   4,1       5,1      6,1     a cell without repeats has its whole list for each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.costs.stage_seconds import NUM_KINDS
from schedir.costs.work import WorkTime
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class SampleTable:
    """Samples as factors on the median of their kind and stage, one list behind the other, each in the order of its repeats."""

    factors: Floats
    """float64: all lists; the factor 1 stands for a kind and stage without samples."""
    start: Ints
    """int64 (num_repeats, len(Kind) x num_stages): where the part of kind x num_stages + stage that a repeat measured begins."""
    count: Ints
    """int64, same shape: its length, at least 1."""

    @property
    def num_repeats(self) -> int:
        """Return how many repeats are told apart, 1 if none are."""
        return len(self.start)

    def draw(self, key: Ints, repeat: Ints, rng: np.random.Generator) -> Floats:
        """Return factors drawn with replacement from those of a repeat.

        `key` is kind x num_stages + stage, int64 (num_tasks); `repeat` int64 (num_tasks, num_samples), as is what comes back.
        """
        # a place among the samples of each key and repeat, then where those begin
        place = (rng.random(repeat.shape) * self.count[repeat, key[:, None]]).astype(np.int64)
        place += self.start[repeat, key[:, None]]
        return self.factors.take(place)


def samples_of(times: Sequence[dict[Kind, WorkTime | None]]) -> SampleTable:
    """Return the samples of every kind on every stage.

    Of a kind and stage whose repeats are not known, or that kept no sample of some repeat, all samples stand for that repeat.
    """
    cells = [row.get(Kind(kind)) for kind in range(NUM_KINDS) for row in times]
    known = sorted({repeat for time in cells if time is not None for repeat in time.repeats}) or [0]
    lists = [_factors(time) for time in cells]  # none is empty, so a place below its count can always be drawn
    length = np.array([len(factors) for factors in lists], np.int64)
    begin = np.cumsum(length) - length
    start, count = np.tile(begin, (len(known), 1)), np.tile(length, (len(known), 1))
    for cell, time in enumerate(cells):
        if time is None or not time.repeats or len(time.repeats) != length[cell]:
            continue
        # repeats never fall, so the samples of each are one piece of the list
        low, high = (np.searchsorted(time.repeats, known, side) for side in ("left", "right"))
        some = high > low
        start[some, cell] = begin[cell] + low[some]
        count[some, cell] = (high - low)[some]
    return SampleTable(np.concatenate(lists), start, count)


def _factors(time: WorkTime | None) -> Floats:
    # a median of 0 has no factors; the task takes no time whatever is drawn
    if time is None or not time.samples or time.median == 0:
        return np.ones(1)
    return np.array(time.samples) / time.median
