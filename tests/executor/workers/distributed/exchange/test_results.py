"""Times of several processes on one clock."""

from __future__ import annotations

import numpy as np

from executor.run.clock import UNRECORDED
from executor.workers.clocks import SAME_CLOCK, AlignedClock, Offset
from executor.workers.distributed.exchange.results import OwnTimes, on_one_clock


def times(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def compared(offset: float, *, bound: float) -> AlignedClock:
    """Compare two clocks at 0 and 1000 ns, without drift."""
    return AlignedClock(Offset(0, offset, bound), Offset(1000, offset, bound))


def test_processes_of_one_host_are_moved_alike_by_the_best_of_their_comparisons() -> None:
    """Process 2 has hit upon the smaller bound: what both hosts' clocks differ by is 500 ± 2."""
    parts = [
        OwnTimes(times(10), times(20), AlignedClock(SAME_CLOCK, SAME_CLOCK)),
        OwnTimes(times(10), times(20), compared(490, bound=30)),
        OwnTimes(times(11), times(21), compared(500, bound=2)),
    ]
    first, second, third = on_one_clock(parts, ["clock of a", "clock of b", "clock of b"])

    assert (first.start.tolist(), first.end.tolist()) == ([10], [20])
    assert (second.start.tolist(), second.end.tolist()) == ([510], [520])
    assert (third.start.tolist(), third.end.tolist()) == ([511], [521])
    assert second.clock == third.clock == compared(500, bound=2)


def test_a_time_that_another_process_knows_is_not_moved() -> None:
    [own] = on_one_clock([OwnTimes(times(UNRECORDED, 5), times(7, UNRECORDED), compared(100, bound=1))], ["a clock"])

    assert (own.start.tolist(), own.end.tolist()) == ([UNRECORDED, 105], [107, UNRECORDED])
