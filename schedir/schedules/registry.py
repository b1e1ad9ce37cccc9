"""The table of schedules, and `build_program`: from a name and a shape to a program."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect, kind_of
from schedir.ir.program import Program
from schedir.ir.shape import Shape, check_count, too_large
from schedir.schedules.chimera import accepts_chimera, chimera
from schedir.schedules.dualpipe import accepts_dualpipe, accepts_dualpipev, dualpipe, dualpipev
from schedir.schedules.gpipe import gpipe
from schedir.schedules.hanayo import accepts_waves, hanayo
from schedir.schedules.interleaved import accepts_loop, interleaved_1f1b, looped_bfs
from schedir.schedules.one_f_one_b import one_f_one_b
from schedir.schedules.pipedream import pipedream
from schedir.schedules.pipedream_2bw import accepts_2bw, pipedream_2bw
from schedir.schedules.pipeoptim import pipeoptim
from schedir.schedules.shape import Schedule
from schedir.schedules.spectrain import spectrain
from schedir.schedules.v_shape import accepts_v, v_half, zb_v
from schedir.schedules.xpipe import xpipe
from schedir.schedules.zero_bubble import interleaved_zb, zb_h1, zb_h2

SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (
        Schedule("gpipe", gpipe, "all forwards, then all backwards, flush (Huang et al. 2019)"),
        Schedule("1f1b", one_f_one_b, "one forward, one backward in turn, flush (DAPPLE, PipeDream-Flush)"),
        Schedule(
            "interleaved-1f1b",
            interleaved_1f1b,
            "1F1B in a loop over several stages per device, flush (Narayanan et al. 2021)",
            accepts=accepts_loop,
            stages_per_device=2,
        ),
        Schedule(
            "looped-bfs",
            looped_bfs,
            "a loop over several stages per device, breadth first, flush (Lamy-Poirier 2022)",
            accepts=accepts_loop,
            stages_per_device=2,
        ),
        Schedule("zb-h1", zb_h1, "1F1B with weight gradients put off, in 1F1B's memory (Qi et al. 2023)"),
        Schedule("zb-h2", zb_h2, "weight gradients put off, more forwards first (Qi et al. 2023)"),
        Schedule(
            "interleaved-zb",
            interleaved_zb,
            "interleaved 1F1B with weight gradients put off",
            accepts=accepts_loop,
            stages_per_device=2,
        ),
        Schedule(
            "zb-v",
            zb_v,
            "two stages per device in a V, no bubble in 1F1B's memory (Qi et al. 2024)",
            accepts_v,
            stages_per_device=2,
        ),
        Schedule("v-half", v_half, "the V in half of 1F1B's memory (Qi et al. 2024)", accepts_v, stages_per_device=2),
        Schedule(
            "dualpipev",
            dualpipev,
            "the V with forwards and backwards overlapped (DeepSeek 2024)",
            accepts_dualpipev,
            stages_per_device=2,
        ),
        Schedule(
            "dualpipe",
            dualpipe,
            "two directions, forwards and backwards overlapped (DeepSeek 2024)",
            accepts_dualpipe,
            stages_per_device=2,
        ),
        Schedule(
            "chimera", chimera, "two pipelines in opposite directions (Li and Hoefler 2021)", accepts_chimera, stages_per_device=2
        ),
        Schedule(
            "hanayo",
            hanayo,
            "waves down and up the devices (Liu et al. 2023)",
            accepts_waves,
            stages_per_device=2,
            multiplied_by="waves",
        ),
        Schedule("pipedream", pipedream, "1F1B without flush on stashed weights (Narayanan et al. 2019)", continuous=True),
        Schedule(
            "pipedream-2bw",
            pipedream_2bw,
            "1F1B without flush on two versions of the weights (Narayanan et al. 2021)",
            accepts_2bw,
            continuous=True,
        ),
        Schedule("xpipe", xpipe, "1F1B without flush on predicted weights (Guan et al. 2019)", continuous=True),
        Schedule(
            "spectrain", spectrain, "1F1B without flush on weights predicted from momentum (Chen et al. 2018)", continuous=True
        ),
        Schedule("pipeoptim", pipeoptim, "1F1B without flush, predicted in the forward only (Guan et al. 2023)", continuous=True),
    )
}
"""The schedules that come with schedir, by name."""

ENTRY_POINTS = "schedir.schedules"
"""Group of entry points under which other packages offer theirs: name = schedule, value = a `Schedule`."""

ALIASES = {
    "afab": "gpipe",
    "dapple": "1f1b",
    "fthenb": "gpipe",
    "interleaved1f1b": "interleaved-1f1b",
    "interleavedzerobubble": "interleaved-zb",
    "loopedbfs": "looped-bfs",
    "pipedream-flush": "1f1b",
    "schedule1f1b": "1f1b",
    "scheduledualpipev": "dualpipev",
    "schedulegpipe": "gpipe",
    "scheduleinterleaved1f1b": "interleaved-1f1b",
    "scheduleinterleavedzerobubble": "interleaved-zb",
    "scheduleloopedbfs": "looped-bfs",
    "schedulezbvzerobubble": "zb-v",
    "vpp": "interleaved-1f1b",
    "zb1p": "zb-h1",
    "zbvzerobubble": "zb-v",
}
"""What the same schedules are called in other tools; names are found in any case, with `_` for `-` too."""


def schedule_names() -> tuple[str, ...]:
    """Return the names of all schedules, those of other packages behind our own."""
    # by name alone: loading them would run other packages' code only to list them
    others = {point.name for point in entry_points(group=ENTRY_POINTS)} - set(SCHEDULES)
    return (*SCHEDULES, *sorted(others))


def find_schedule(name: str) -> Schedule:
    """Return the schedule of this name (or alias, or entry point); raise ArgumentError with the known names."""
    plain = name.lower().replace("_", "-")
    plain = ALIASES.get(plain, plain)
    # ours first: no other package can take one of these names
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
        raise ArgumentError(f"schedule {point.name!r}: {point.value} is {kind_of(found)}, not a Schedule")
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
    expect(name, str, "name", remedy=f"give one of {', '.join(SCHEDULES)}")
    schedule = find_schedule(name)
    num_devices = check_count("num_devices", num_devices)
    # the numbers that a schedule needs may depend on its options (hanayo's waves) and on p (steady state)
    if num_mini_batches is None:
        num_mini_batches = schedule.default_mini_batches(num_devices)
    if stages_per_device is None:
        stages_per_device = schedule.default_stages(options)
    # every count is checked here once, so that schedules are plain formulas
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
    refused = f"schedule {schedule.name} has no option {option!r}: it has {', '.join(schedule.options) or 'none'}; leave it out"
    having = [other.name for other in SCHEDULES.values() if option in other.options]
    if not having:
        raise ArgumentError(refused)
    *first, last = having
    others = f"{', '.join(first)} or {last}, which have it" if first else f"{last}, which has it"
    raise ArgumentError(f"{refused}, or use {others}")
