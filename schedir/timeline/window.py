"""A part of a timeline: what happens while some mini-batches end, cut at both sides, to be drawn.

mini-batch    0     1     2     3            first = last = 2: from the end of 1 to the end of 2
device 0   [F0 F1 F2 B0 U][F3 …
                  |———————|
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from schedir.errors import ArgumentError
from schedir.timeline.metrics.steady import mini_batch_end, steady_range
from schedir.timeline.timeline import Timeline

LEAST_SHOWN = 3
"""Mini-batches in a picture: enough to see how they follow each other, few enough to read single tasks."""
SHOWN_MICRO_BATCHES = 12
"""More mini-batches are drawn where they have few micro-batches: as many as hold these."""


def readable_count(timelines: Sequence[Timeline]) -> int:
    """Return how many mini-batches of these timelines can be read in one picture."""
    return max(LEAST_SHOWN, SHOWN_MICRO_BATCHES // max(timeline.graph.program.num_micro_batches for timeline in timelines))


def part_text(first: int, last: int, count: int) -> str:
    """Return which of `count` mini-batches are drawn: `mini-batches 4 to 6 of 12`."""
    return f"mini-batch {first} of {count}" if first == last else f"mini-batches {first} to {last} of {count}"


def window(timeline: Timeline, first: int, last: int) -> Timeline:
    """Return what happens between the end of the mini-batch before `first` (0: the start) and the end of `last`.

    Spans are cut at both ends; tasks outside count as not recorded, and memory is left out. Raises ArgumentError for
    mini-batches that the timeline does not have.
    """
    num_mini_batches = timeline.graph.program.num_mini_batches
    if not 0 <= first <= last < num_mini_batches:
        raise ArgumentError(
            f"mini-batches {first} to {last} are no part of a run of {num_mini_batches}: give two of 0..{num_mini_batches - 1}"
        )
    low = mini_batch_end(timeline, first - 1) if first else None
    high = mini_batch_end(timeline, last)
    start, end = timeline.start.copy(), timeline.end.copy()
    if low is not None:
        # a span across the cut loses the part outside; one that lies outside gets NaN, below for both ends
        start, end = np.maximum(start, low), np.where(end > low, end, np.nan)
    if high is not None:
        start, end = np.where(start < high, start, np.nan), np.minimum(end, high)
    outside = np.isnan(start) | np.isnan(end)
    start[outside] = end[outside] = np.nan
    # a release behind the cut end would say that the link is occupied where nothing is drawn
    release = None if timeline.release is None else np.clip(timeline.release, start, end)
    return replace(timeline, start=start, end=end, release=release, memory=None)


def drawn_part(timeline: Timeline, wanted: tuple[int, int] | int | None, *, most: int) -> tuple[int, int] | None:
    """Return first and last of the mini-batches of a timeline that are drawn, None where all are.

    `wanted` are the first and the last, or how many at most, of the middle of the steady state (None: all); `most` is how many
    the longest run of the picture has.
    """
    count = timeline.graph.program.num_mini_batches
    if wanted is None or (isinstance(wanted, int) and count <= wanted):
        return None
    if isinstance(wanted, int):
        return steady_part(timeline, wanted)
    first, last = wanted
    # beside a longer run a shorter one is drawn to its end; what no run has is refused by `window`
    part = first, min(last, count - 1) if last < most else last
    return None if part == (0, count - 1) else part


def steady_part(timeline: Timeline, count: int) -> tuple[int, int]:
    """Return first and last of at most `count` mini-batches in the middle of the steady state, or of the run where it has none."""
    num_mini_batches = timeline.graph.program.num_mini_batches
    low, high = steady_range(timeline.graph) or (-1, num_mini_batches - 1)
    count = min(count, high - low)
    # mini-batch `low` ends where the steady state begins, so low + 1 is the first that lies in it
    first = low + 1 + (high - low - count) // 2
    return first, first + count - 1
