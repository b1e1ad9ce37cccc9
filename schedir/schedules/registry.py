"""The table of schedules, and `build_program`: from a name and a shape to a program."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.program import Program
from schedir.schedules.gpipe import gpipe
from schedir.schedules.one_f_one_b import one_f_one_b
from schedir.schedules.pipedream import pipedream
from schedir.schedules.shape import Schedule, Shape, is_count
from schedir.schedules.xpipe import xpipe

SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (
        Schedule("gpipe", gpipe, "all forwards, then all backwards, flush (Huang et al. 2019)"),
        Schedule("1f1b", one_f_one_b, "one forward, one backward in turn, flush (DAPPLE, PipeDream-Flush)"),
        Schedule("pipedream", pipedream, "1F1B without flush on stashed weights (Narayanan et al. 2019)", continuous=True),
        Schedule("xpipe", xpipe, "1F1B without flush on predicted weights (Guan et al. 2019)", continuous=True),
    )
}
"""Schedules by name. Other packages add theirs under the entry point group `schedir.schedules`."""

ALIASES = {
    "1F1B": "1f1b",
    "dapple": "1f1b",
    "pipedream-flush": "1f1b",
    "GPipe": "gpipe",
    "afab": "gpipe",
    "fthenb": "gpipe",
}
"""What the same schedules are called in other tools."""


def find_schedule(name: str) -> Schedule:
    """Return the schedule of this name (or alias, or entry point); raise ArgumentError with the known names."""
    name = ALIASES.get(name, name)
    if name in SCHEDULES:
        return SCHEDULES[name]
    for point in entry_points(group="schedir.schedules", name=name):
        found = point.load()
        if not isinstance(found, Schedule):
            raise ArgumentError(f"entry point {name!r} of group schedir.schedules is {type(found).__name__}, not a Schedule")
        return found
    close = get_close_matches(name, [*SCHEDULES, *ALIASES], n=1)
    hint = f", did you mean {ALIASES.get(close[0], close[0])}?" if close else ""
    raise ArgumentError(f"schedule {name!r} is unknown{hint}: use one of {', '.join(SCHEDULES)}, or a file")


def build_program(
    name: str,
    *,
    num_devices: int,
    num_micro_batches: int,
    num_mini_batches: int | None = None,
    stages_per_device: int | None = None,
    **options: Any,
) -> Program:
    """Build the program of a named schedule.

    `num_micro_batches` counts per update and replica. `num_mini_batches` is 1 for synchronous schedules and 2p + 8 for
    continuous ones if not given. Options are those of the schedule's function. Raises ArgumentError for values that are no
    positive integers or options it does not have, RefusedError (with the reason) for shapes it does not accept.
    """
    schedule = find_schedule(name)
    counts = {"num_devices": num_devices, "num_micro_batches": num_micro_batches}
    counts |= {"num_mini_batches": num_mini_batches} if num_mini_batches is not None else {}
    counts |= {"stages_per_device": stages_per_device} if stages_per_device is not None else {}
    for argument, value in counts.items():
        if not is_count(value):
            raise ArgumentError(f"{argument} {value!r} must be an integer of at least 1")
    shape = Shape(
        num_devices=num_devices,
        num_micro_batches=num_micro_batches,
        num_mini_batches=num_mini_batches if num_mini_batches is not None else schedule.default_mini_batches(num_devices),
        stages_per_device=stages_per_device if stages_per_device is not None else schedule.stages_per_device,
    )
    for option in options:
        if option not in schedule.options:
            known = ", ".join(schedule.options) or "none"
            raise ArgumentError(f"schedule {schedule.name} has no option {option!r}: it has {known}")
    reason = schedule.accepts(shape)
    if reason is not None:
        raise RefusedError(f"{schedule.name} does not take this shape: {reason}")
    return schedule.build(shape, **options)
