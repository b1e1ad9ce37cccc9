"""The table of schedules, and `build_program`: from a name and a shape to a program."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.expect import expect
from schedir.ir.program import Program
from schedir.ir.shape import Shape, check_count, too_large
from schedir.schedules.gpipe import gpipe
from schedir.schedules.one_f_one_b import one_f_one_b
from schedir.schedules.pipedream import pipedream
from schedir.schedules.shape import Schedule
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
"""The schedules that come with schedir, by name."""

ENTRY_POINTS = "schedir.schedules"
"""Group of entry points under which other packages offer theirs: name = schedule, value = a `Schedule`."""

ALIASES = {
    "afab": "gpipe",
    "dapple": "1f1b",
    "fthenb": "gpipe",
    "pipedream-flush": "1f1b",
    "schedule1f1b": "1f1b",
    "schedulegpipe": "gpipe",
}
"""What the same schedules are called in other tools; names are found in any case, with `_` for `-` too."""


def schedule_names() -> tuple[str, ...]:
    """Return the names of all schedules, those of other packages behind our own."""
    others = {point.name for point in entry_points(group=ENTRY_POINTS)} - set(SCHEDULES)
    return (*SCHEDULES, *sorted(others))


def find_schedule(name: str) -> Schedule:
    """Return the schedule of this name (or alias, or entry point); raise ArgumentError with the known names."""
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    if plain in SCHEDULES:
        return SCHEDULES[plain]
    for point in entry_points(group=ENTRY_POINTS, name=name):
        return _load(point)
    known = schedule_names()
    close = get_close_matches(plain, [*known, *ALIASES], n=1)
    hint = f", did you mean {ALIASES.get(close[0], close[0])}?" if close else ""
    raise ArgumentError(f"schedule {name!r} is unknown{hint}: use one of {', '.join(known)}, or a file")


def _load(point: EntryPoint) -> Schedule:
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise ArgumentError(f"schedule {point.name!r} cannot be loaded from {point.value}: {error}") from error
    if not isinstance(found, Schedule):
        raise ArgumentError(f"schedule {point.name!r}: {point.value} is a {type(found).__name__}, not a Schedule")
    return found


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
    expect(name, str, "name", remedy=f"give one of {', '.join(schedule_names())}")
    schedule = find_schedule(name)
    num_devices = check_count("num_devices", num_devices)
    if num_mini_batches is None:
        num_mini_batches = schedule.default_mini_batches(num_devices)
    if stages_per_device is None:
        stages_per_device = schedule.stages_per_device
    shape = Shape(
        num_devices=num_devices,
        num_micro_batches=check_count("num_micro_batches", num_micro_batches),
        num_mini_batches=check_count("num_mini_batches", num_mini_batches),
        stages_per_device=check_count("stages_per_device", stages_per_device),
    )
    for option in options:
        _check_option(schedule, option)
    excess = too_large(shape.num_stages, shape.total_micro_batches)
    if excess is not None:
        raise RefusedError(f"{schedule.name}: {excess}")
    reason = schedule.accepts(shape)
    if reason is not None:
        raise RefusedError(f"{schedule.name} does not take this shape: {reason}")
    return schedule.build(shape, **options)


def _check_option(schedule: Schedule, option: str) -> None:
    if option in schedule.options:
        return
    known = ", ".join(schedule.options) or "none"
    others = " or ".join(other.name for other in SCHEDULES.values() if option in other.options)
    remedy = f"leave it out, or use {others}, which has it" if others else "leave it out"
    raise ArgumentError(f"schedule {schedule.name} has no option {option!r}: it has {known}; {remedy}")
