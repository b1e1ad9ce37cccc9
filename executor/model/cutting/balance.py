"""Cut a row of costs into parts that are as equal as they can be.

The largest part is as small as possible; of all such cuts the one with the smallest sum of squares, so that the other parts are
equal too: costs 3 x 0, 42 x 1, 4 x 0 in 16 parts make ten of 3 and six of 2, not parts of 3 and empty ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from schedir.errors import ArgumentError

Join = Callable[[float, float], float]
"""(cost of a part, value of the parts before it) -> value of all."""


def balanced(costs: Sequence[float], num_parts: int) -> list[int]:
    """Return how many neighbours make each part, at least 1; O(parts x costs^2). Raises ArgumentError for too few costs."""
    if not 1 <= num_parts <= len(costs):
        raise ArgumentError(f"a model of {len(costs)} layers does not cut into {num_parts} stages: ask for 1..{len(costs)}")
    sums = list(accumulate(costs, initial=0.0))
    limit = _best(sums, num_parts, max)[0]  # the same differences are compared again below, so no rounding comes between
    cuts = _best(sums, num_parts, lambda part, rest: part * part + rest if part <= limit else math.inf)[1]
    return [high - low for low, high in pairwise(cuts)]


def _best(sums: Sequence[float], num_parts: int, join: Join) -> tuple[float, list[int]]:
    """Return the least value over all cuts, and the cut: `join` adds the cost of a last part to the value of those before."""
    count = len(sums) - 1
    value = [0.0 if end == 0 else math.inf for end in range(count + 1)]
    starts: list[list[int]] = []
    for part in range(1, num_parts + 1):
        before, value, start = value, [math.inf] * (count + 1), [0] * (count + 1)
        for end in range(part, count - (num_parts - part) + 1):
            found = ((join(sums[end] - sums[low], before[low]), low) for low in range(part - 1, end) if before[low] < math.inf)
            value[end], start[end] = min(found, default=(math.inf, 0))
        starts.append(start)
    cuts = [count]
    for start in reversed(starts):
        cuts.append(start[cuts[-1]])
    return value[count], cuts[::-1]
