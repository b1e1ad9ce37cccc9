"""Where slices of a trace stand: whole nanoseconds, and rows in which no two slices overlap.

Viewers drop or distort slices of one row that overlap without being nested, so transfers that overlap on a link (and measured
tasks that overlap on a device) get further rows. Rounding to nanoseconds comes first: float noise is no overlap.

    link 0->1       F0 ──────────▶                 row 0
    link 0->1 (2)        F1 ──────────▶            row 1
    link 0->1                        F2 ─────▶     row 0
"""

from __future__ import annotations

import numpy as np

from schedir.ir.arrays import Floats, Ints


def nanoseconds(seconds: Floats, origin: float) -> Ints:
    """Return whole nanoseconds since `origin`, int64; NaN must not be among them."""
    return np.rint((seconds - origin) * 1e9).astype(np.int64)


def rows_without_overlap(start: Ints, end: Ints) -> Ints:
    """Return a row for every slice, counted from 0: the first in which it overlaps none that starts before it.

    Slices that only touch, and slices of no length, overlap nothing.
    """
    order = np.lexsort((end, start))  # by start, of equal ones the shorter first
    # nobody starts before all that started earlier have ended: one row is enough
    if not (start[order][1:] < np.maximum.accumulate(end[order])[:-1]).any():
        return np.zeros(len(start), np.int64)
    rows = np.zeros(len(start), np.int64)
    free: list[int] = []  # when each row is free again
    for index, begin, finish in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        row = next((row for row, until in enumerate(free) if until <= begin), len(free))
        if row == len(free):
            free.append(finish)
        free[row] = finish
        rows[index] = row
    return rows
