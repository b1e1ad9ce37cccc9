"""Guards at the simulator's border: SimPy itself takes NaN for a delay and then ends quietly, with nothing said."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from schedir.costs.checks import non_negative, plain_number
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes

Word = TypeVar("Word", bound=StrEnum)


def choose(words: type[Word], name: str, value: str) -> Word:
    """Return the member that `value` names; raise ArgumentError with the known ones."""
    try:
        return words(value)
    except ValueError:
        known = [word.value for word in words]
        raise ArgumentError(f"{name} {value!r} is unknown: use {', '.join(known[:-1])} or {known[-1]}") from None


def check_times(graph: TaskGraph, times: TaskTimes) -> TaskTimes:
    """Return `times` if there is one for every task, finite and at least 0; raise ArgumentError naming the first that is not."""
    for what, values in (("duration", times.duration), ("latency", times.latency)):
        if values is not None:
            _check(graph, what, values)
    non_negative("dispatch gap", times.gap)
    return times


def _check(graph: TaskGraph, what: str, values: NDArray[np.float64]) -> None:
    if values.shape != (graph.num_tasks,):
        raise ArgumentError(f"the costs give a {what} to {values.shape} tasks, but the graph has {graph.num_tasks}: give each one")
    if not (values.min() >= 0 and values.max() < np.inf):  # a NaN is the minimum
        task = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
        raise ArgumentError(f"the costs give {graph.label(task)} a {what} of {values[task]} s: it must be finite and at least 0")


def memory_limits(limit: object, num_devices: int) -> list[int] | None:
    """Return the limit of every device in bytes, from one or one per device; raise ArgumentError for anything else."""
    if limit is None:
        return None
    limit = plain_number(limit)
    if isinstance(limit, str) or not isinstance(limit, Iterable):
        return [int(non_negative("memory_limit", limit, "bytes"))] * num_devices
    limits = [int(non_negative(f"memory_limit[{device}]", value, "bytes")) for device, value in enumerate(limit)]
    if len(limits) != num_devices:
        raise ArgumentError(f"memory_limit has {len(limits)} values for {num_devices} devices: give one, or one per device")
    return limits
