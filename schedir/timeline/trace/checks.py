"""What spans and meta of a stored timeline must keep to, so that a file that was changed by hand is not believed.

Rules: a task starts before it ends and its lane is free again in between; a device does one task after the other, in the order of
its lane; a task ends no earlier than what it depends on. Tasks without a span (null) are left out; a transfer without one hands on
the end of its sources. Times may be off by a nanosecond, or by the alignment error of clocks that the meta states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from schedir.errors import FormatError
from schedir.expect import shown
from schedir.timeline.timeline import Timeline

TOLERANCE_S = 1e-9
"""Clocks count nanoseconds."""

ROUNDING = 1e-12
"""Relative: what float64 sums of long runs may be off."""


def check_stored(timeline: Timeline, place: str) -> None:
    """Raise FormatError, in one line with file, task, values and rule, for a timeline that cannot have happened."""
    _check_meta(timeline, place)
    _check_memory(timeline, place)
    _check_spans(timeline, place)
    tolerance = _tolerance(timeline)
    _check_lanes(timeline, tolerance, place)
    _check_dependencies(timeline, tolerance, place)


def _tolerance(timeline: Timeline) -> float:
    recorded = timeline.recorded
    largest = float(np.abs(timeline.end[recorded]).max()) if recorded.any() else 0.0
    return max(TOLERANCE_S, float(timeline.meta.get("clock") or 0.0), ROUNDING * largest)


def _check_spans(timeline: Timeline, place: str) -> None:
    start, end, release = timeline.start, timeline.end, timeline.release
    for name, column in (("end_s", end), ("release_s", release)):
        if column is None:
            continue
        # NaN compares as neither earlier nor later, so a span with one end would pass every rule below
        half = np.flatnonzero(np.isnan(column) != np.isnan(start))
        if len(half):
            raise _fault(timeline, place, task=int(half[0]), fault=f"only one of start_s and {name} is null: give both, or neither")
        early = np.flatnonzero(column < start)
        if len(early):
            task = int(early[0])
            raise _fault(
                timeline, place, task=task, fault=f"{name} {column[task]!s} is before start_s {start[task]!s}: a task starts first"
            )


def _check_lanes(timeline: Timeline, tolerance: float, place: str) -> None:
    graph, start, end = timeline.graph, timeline.start, timeline.end
    # compute lanes only: transfers of a link may overlap by their latency
    compute = np.flatnonzero(timeline.recorded[: graph.num_compute_tasks])
    before, task = compute[:-1], compute[1:]
    same = graph.device[before] == graph.device[task]
    wrong = np.flatnonzero(same & (start[task] < end[before] - tolerance))
    if len(wrong):
        first, second = int(before[wrong[0]]), int(task[wrong[0]])
        raise _fault(
            timeline,
            place,
            task=second,
            fault=f"start_s {start[second]!s} is before end_s {end[first]!s} of {graph.label(first)}: "
            f"device {graph.device[second]} does one task after the other, in the order of its program",
        )


def _check_dependencies(timeline: Timeline, tolerance: float, place: str) -> None:
    graph, end = timeline.graph, timeline.end
    if not len(graph.edge_source):
        return
    # what was not recorded excuses everybody, save a transfer, which passes on when its sources ended
    known = np.where(np.isnan(end), -np.inf, end)
    target = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    handed_on = (target >= graph.num_compute_tasks) & np.isnan(end[target])
    np.maximum.at(known, target[handed_on], known[graph.edge_source[handed_on]])
    wrong = np.flatnonzero(end[target] < known[graph.edge_source] - tolerance)
    if len(wrong):
        task, source = int(target[wrong[0]]), int(graph.edge_source[wrong[0]])
        raise _fault(
            timeline,
            place,
            task=task,
            fault=f"end_s {end[task]!s} is before end {known[source]!s} of {graph.label(source)}, on which it depends: "
            "a task ends behind its sources",
        )


def _fault(timeline: Timeline, place: str, *, task: int, fault: str) -> FormatError:
    return FormatError(f"{place}: task {task}, {timeline.graph.label(task)}: {fault}; record the run again")


def _check_memory(timeline: Timeline, place: str) -> None:
    for device, steps in enumerate(timeline.memory or ()):
        if len(steps.time) != len(steps.by_class) or not len(steps.time):
            raise FormatError(
                f"{place}: memory.{device}: {len(steps.time)} times for {len(steps.by_class)} rows: give one row for each"
            )
        if np.isnan(steps.time).any() or (np.diff(steps.time) < 0).any():
            raise FormatError(f"{place}: memory.{device}: time_s decreases or has null: give times in their order")


def _check_meta(timeline: Timeline, place: str) -> None:
    program = timeline.graph.program
    lengths = {"devices": program.num_devices, "stages": program.num_stages}
    for key, value in timeline.meta.items():
        if not _is_finite(value):
            raise FormatError(f"{place}: meta.{key} holds a number that is not finite: write null")
        if key not in META or value is None:
            continue
        rule, of_what = META[key]
        counted = next((count for word, count in lengths.items() if of_what.endswith(word)), None)
        if not rule(value) or (counted is not None and len(value) != counted):
            raise FormatError(f"{place}: meta.{key} is {shown(value)}: give {of_what}, or null")
    # figures look up every link by its name, so one that is missing would end in the middle of a report
    links = timeline.meta.get("link_bytes")
    missing = (
        []
        if links is None
        else [str(lane) for lane in timeline.graph.lanes if str(lane).startswith("link") and str(lane) not in links]
    )
    if missing:
        raise FormatError(f"{place}: meta.link_bytes lacks {missing[0]}: give the bytes of every link, or null")


def _is_finite(value: object) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
        case _:
            return True


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    # `type`, since isinstance takes true and false for integers; 64 bits, since arrays are made of them
    return type(value) is int and 0 <= value < 2**63


def _is_seconds(value: object) -> bool:
    return type(value) is float or _is_count(value)


def _is_flag(value: object) -> bool:
    return type(value) is bool


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_list_of(rule: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def _is_link_bytes(value: Any) -> bool:
    return _is_table(value) and _are_counts(value.values())


def _are_counts(values: Iterable[object]) -> bool:
    return all(map(_is_count, values))


META: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "engine": (_is_text, "a text"),
    "seed": (_is_count, "an integer of at least 0"),
    "costs": (_is_table, "an object"),
    "cluster": (_is_table, "an object"),
    "notes": (_is_list_of(_is_text), "a list of texts"),
    "micro_batch_size": (_is_count, "an integer of at least 0"),
    "mini_batch_size": (_is_count, "an integer of at least 0"),
    "data_parallel": (_is_count, "an integer of at least 0"),
    "tensor_parallel": (_is_count, "an integer of at least 0"),
    "limit_bytes": (_is_list_of(_is_count), "a list of integers for the devices"),
    "reserved_bytes": (_is_list_of(_is_count), "a list of integers for the devices"),
    "hosts": (_is_list_of(_is_count), "a list of integers for the devices"),
    "layers": (_is_list_of(_is_list_of(_is_text)), "lists of texts for the stages"),
    "link_bytes": (_is_link_bytes, "an object with an integer for every link"),
    "workers": (_is_text, "a text"),
    "machine": (_is_table, "an object"),
    "clock": (_is_seconds, "seconds"),
    "first_mini_batch": (_is_count, "an integer of at least 0"),
    "warm_up": (_is_flag, "true or false"),
}
"""What the meta of `Timeline` may hold under the keys that figures and reports read; others are kept as they are."""

__all__ = ["check_stored"]
