"""How far two timelines of one graph agree: starts, order on every device, critical paths, peaks."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.ir.arrays import Floats, Ints
from schedir.timeline.metrics.critical_path import critical_tasks, path_seconds
from schedir.timeline.settled import SettledTimes
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class StartError:
    """By how much tasks start earlier or later than predicted, over the measured makespan; both runs start at 0."""

    median: float
    p95: float
    max: float


def start_error(predicted: SettledTimes, measured: SettledTimes, both: Ints) -> StartError:
    """Compare the starts of the compute tasks `both`, which are recorded on both sides."""
    if not len(both) or not measured.makespan > 0:
        return StartError(0.0, 0.0, 0.0)
    shift = (predicted.start[both] - predicted.first) - (measured.start[both] - measured.first)
    median, p95, most = (seconds / measured.makespan for seconds in np.percentile(np.abs(shift), (50, 95, 100)).tolist())
    return StartError(median, p95, most)


def order_agreement(predicted: Timeline, measured: Timeline, both: Ints) -> tuple[float, ...]:
    """Return for every device the share of pairs of its tasks that start in the same order on both sides (1 for fewer than two)."""
    graph = predicted.graph
    shares = []
    for device in range(graph.program.num_devices):
        tasks = both[(both >= graph.lane_start[device]) & (both < graph.lane_start[device + 1])]
        # predicted order   A B C D
        # place measured    0 2 1 3        one pair stands the other way round: 1 - 1 / 6
        in_time = tasks[np.argsort(predicted.start[tasks], kind="stable")]
        place = np.empty(len(tasks), np.int64)
        place[np.argsort(measured.start[in_time], kind="stable")] = np.arange(len(tasks))
        shares.append(1.0 - _inversions(place) / max(len(tasks) * (len(tasks) - 1) // 2, 1))
    return tuple(shares)


def _inversions(place: Ints) -> int:
    """Count the pairs that stand in falling order."""
    if (np.diff(place) > 0).all():
        return 0
    # `insort` moves whatever is larger, n ** 2 moves in the worst case; but a device has some thousand tasks, nearly in order
    seen: list[int] = []
    found = 0
    for value in place.tolist():
        found += len(seen) - bisect_right(seen, value)
        insort(seen, value)
    return found


def path_overlap(predicted: SettledTimes, measured: SettledTimes) -> float:
    """Return the weighted Jaccard index of the critical paths: 1 for the same tasks, 0 for none in common.

    A task weighs its share of its own path, so that durations wrong by a common factor do not count here.
    """
    shares = np.zeros((2, predicted.graph.num_tasks))
    for side, settled in enumerate((predicted, measured)):
        path = critical_tasks(settled)
        seconds = path_seconds(settled, path)
        shares[side, path] = seconds / seconds.sum() if seconds.sum() > 0 else 0.0
    union = float(shares.max(axis=0).sum())
    return float(shares.min(axis=0).sum()) / union if union > 0 else 1.0


def peak_errors(predicted: Sequence[int | None], measured: Sequence[int | None]) -> tuple[float | None, ...]:
    """Return predicted / measured - 1 of every device's peak bytes, None for a peak of 0; empty if one side has no memory."""
    if None in predicted or None in measured:
        return ()
    return tuple(mine / theirs - 1.0 if theirs else None for mine, theirs in zip(predicted, measured, strict=True))  # type: ignore[operator]  # no None here


def concurrency(settled: SettledTimes, tasks: Ints) -> Floats:
    """Return how many devices compute at once, averaged over each task's span, itself included; 1 for a task of no length."""
    compute = slice(0, settled.graph.num_compute_tasks)
    start, end = settled.start[compute], settled.end[compute]
    #   device 0   ├────── A ──────┤              busy      1   2       1       0     changes at starts and ends
    #   device 1       ├─ B ─┤                    area      the integral of busy: between A's ends it has grown by |A| + |B|,
    #              0   1     3     5              so A computes with 1 + 2/5 devices on average, B with 2
    times = np.concatenate((start, end))
    order = np.argsort(times, kind="stable")
    times = times[order]
    busy = np.cumsum(np.repeat((1, -1), len(start))[order])
    area = np.concatenate(([0.0], np.cumsum(np.diff(times) * busy[:-1])))  # device-seconds until each of `times`
    length = end[tasks] - start[tasks]
    covered = np.interp(end[tasks], times, area) - np.interp(start[tasks], times, area)
    return np.where(length > 0, covered / np.where(length > 0, length, 1.0), 1.0)
