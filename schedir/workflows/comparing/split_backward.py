"""What splitting a backward costs, by profiles: its halves, I and W, together against the whole one, B."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.timeline.percent import percent

MUCH = 1.15
"""From this ratio on it is said."""
HALVES, WHOLE = ("input_grad", "weight_grad"), ("backward",)


def halves_over_whole(profiles: Iterable[TableCosts]) -> float | None:
    """Return the seconds of I + W over those of B, of all stages together; None where one of them was not profiled.

    Halves and whole ones may come from different profiles of one model: a schedule that splits runs no whole backward.
    """
    found = list(profiles)
    halves, wholes = ([time for each in found if (time := _per_sample(each, kinds))] for kinds in (HALVES, WHOLE))
    return float(np.median(halves) / np.median(wholes)) if halves and wholes else None


def split_backward_lines(profiles: Mapping[str, TableCosts]) -> list[str]:
    """Return the line that says that the halves take much longer, and what that means for the schedules that split."""
    ratio = halves_over_whole(profiles.values())
    if ratio is None or ratio < MUCH:
        return []
    names = ", ".join(name for name, costs in profiles.items() if _per_sample(costs, HALVES))
    line = (
        f"{names}: the halves of backward, I + W, take {ratio:.2f} times as long as the whole one, B, by the profiles: splitting "
        f"adds {percent(ratio - 1)} to every backward of this model here, which a smaller bubble has to win back first"
    )
    return [line]


def _per_sample(costs: TableCosts, kinds: Sequence[str]) -> float:
    """Return the median seconds of these kinds on all stages together, by the sample; 0 where they were not profiled."""
    times = [getattr(row, kind) for row in costs.rows for kind in kinds]
    return sum(time.median for time in times if isinstance(time, WorkTime)) / costs.micro_batch_size
