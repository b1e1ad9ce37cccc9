"""Times of one piece of work, and values that are tabulated by micro-batch size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from schedir.costs.checks import non_negative
from schedir.errors import ArgumentError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class WorkTime:
    """How long a piece of work takes, in seconds; raises ArgumentError for what is not finite and at least 0."""

    median: float
    """What predictions use."""
    first: float | None = None
    """The first of each mini-batch on its stage and device, which runs on cold caches; None: as all others."""
    samples: tuple[float, ...] = ()
    """Single measurements, the first of each mini-batch not among them; empty where none were kept."""
    repeats: tuple[int, ...] = ()
    """The mini-batch of the measurement, 0, 1, …, that each sample is of, never falling; empty: not known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "median", non_negative("median", self.median))
        if self.first is not None:
            object.__setattr__(self, "first", non_negative("first", self.first))
        object.__setattr__(self, "samples", tuple(non_negative("samples", sample) for sample in self.samples))
        if self.repeats:
            object.__setattr__(self, "repeats", _checked_repeats(self.repeats, len(self.samples)))

    def scaled(self, factor: float) -> WorkTime:
        """Return `factor` times as long a time."""
        first = None if self.first is None else self.first * factor
        return WorkTime(self.median * factor, first, tuple(sample * factor for sample in self.samples), self.repeats)


def _checked_repeats(repeats: Sequence[int], num_samples: int) -> tuple[int, ...]:
    if len(repeats) != num_samples:
        raise ArgumentError(f"repeats has {len(repeats)} values for {num_samples} samples: give one for each")
    found = tuple(map(_repeat, repeats))
    if any(later < earlier for earlier, later in pairwise(found)):
        raise ArgumentError(f"repeats {list(found)} fall: give samples in the order in which they were measured")
    return found


def _repeat(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(f"repeats {value!r} must be an integer of at least 0: number the measured mini-batches from 0")
    return value


def total(times: Sequence[WorkTime]) -> WorkTime:
    """Return the time of several pieces run one behind the other; raises ArgumentError where there are none.

    The median of a sum is taken as the sum of the medians. Samples are added one by one, since those of one repetition
    belong together, down to the shortest list, where their repeats are known the shortest of each repeat; a single sample
    is added to all.
    """
    if not times:
        raise ArgumentError("no times to add up: give at least one")
    if len(times) == 1:
        return times[0]
    has_first = any(time.first is not None for time in times)
    # a piece without a first of its own is as fast in the first micro-batch as in all others
    first = sum(time.median if time.first is None else time.first for time in times) if has_first else None
    return WorkTime(sum(time.median for time in times), first, *_added(times))


def _added(times: Sequence[WorkTime]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the samples of the sum and their repeats."""
    if all(time.repeats for time in times):
        return _added_by_repeat(times)
    return _added_in_order(times), ()


def _added_by_repeat(times: Sequence[WorkTime]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    samples, repeats = [], []
    for repeat in sorted(set.intersection(*(set(time.repeats) for time in times))):
        # repeats never fall, so the samples of one are a piece that two bisections find
        own = [time.samples[bisect_left(time.repeats, repeat) : bisect_right(time.repeats, repeat)] for time in times]
        sums = [sum(column) for column in zip(*own, strict=False)]  # down to the shortest
        samples += sums
        repeats += [repeat] * len(sums)
    return tuple(samples), tuple(repeats)


def _added_in_order(times: Sequence[WorkTime]) -> tuple[float, ...]:
    lists = [time.samples or (time.median,) for time in times]
    # a list of one is no limit: its value goes with every repetition of the others
    length = min((len(samples) for samples in lists if len(samples) > 1), default=1)
    if length == 1 and not any(time.samples for time in times):
        return ()
    rows = [samples * length if len(samples) == 1 else samples[:length] for samples in lists]
    return tuple(sum(column) for column in zip(*rows, strict=True))


@dataclass(frozen=True, slots=True)
class BySize(Generic[Value]):
    """Values tabulated by micro-batch size; between two sizes they are taken as linear."""

    sizes: tuple[int, ...]
    """Samples of a micro-batch, increasing."""
    values: tuple[Value, ...]
    """One per size."""

    def at(self, size: int, blend: Callable[[Value, Value, float], Value]) -> Value:
        """Return the value at a size; `blend(low, high, share)` lies `share` of the way from low to high.

        Raises ArgumentError outside of the table.
        """
        if not self.sizes[0] <= size <= self.sizes[-1]:
            raise ArgumentError(
                f"micro_batch_size {size} lies outside the costs' table ({self.sizes[0]}..{self.sizes[-1]}): "
                "use a size inside, or profile this one"
            )
        # linear between two sizes, and refused outside: nothing says how times go on there
        above = next(k for k, known in enumerate(self.sizes) if known >= size)
        if self.sizes[above] == size:
            return self.values[above]
        low, high = self.sizes[above - 1], self.sizes[above]
        return blend(self.values[above - 1], self.values[above], (size - low) / (high - low))


def blend_numbers(low: float, high: float, share: float) -> float:
    """Return the number `share` of the way from low to high."""
    return low + (high - low) * share


def blend_times(low: WorkTime, high: WorkTime, share: float) -> WorkTime:
    """Return the time `share` of the way from low to high; its samples are the nearer one's, scaled."""
    median = blend_numbers(low.median, high.median, share)
    # samples at the two sizes were not measured together, so there is nothing to blend one by one
    near = low if share < 0.5 else high
    scaled = near.scaled(median / near.median) if near.median else near
    first = None if low.first is None or high.first is None else blend_numbers(low.first, high.first, share)
    return WorkTime(median, first, scaled.samples, scaled.repeats)
