"""From what stands on the command line (a schedule's name, a file, a function) to programs and task graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from schedir.cli.options import NUM_DEVICES, NUM_MICRO_BATCHES, RecomputeOptions, ScheduleOptions, ShapeOptions
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.ir.graph import TaskGraph
    from schedir.ir.program import Program


def read_program(source: str, shape: ShapeOptions, options: ScheduleOptions) -> Program:
    """Return the program of a named schedule, or that of a file or function."""
    from schedir.schedules.registry import build_program

    counts = {"num_devices": NUM_DEVICES, "num_micro_batches": NUM_MICRO_BATCHES} | shape.given()
    return build_program(source, **counts, **options.given())


def is_timeline(source: str) -> bool:
    """Return True for the name of a file that holds a timeline (a Chrome trace)."""
    return source.endswith((".json", ".json.gz"))


def options_for(sources: Sequence[str], options: ScheduleOptions) -> list[ScheduleOptions]:
    """Return for each of several schedules the given options that it has; raise ArgumentError for one that none has."""
    from schedir.schedules.registry import ALIASES, SCHEDULES

    named = [SCHEDULES.get(ALIASES.get(source, source)) for source in sources]
    known = [set(options.given()) if schedule is None else set(schedule.options) for schedule in named]
    for option in options.given():
        if not any(option in names for names in known):
            raise ArgumentError(f"none of {', '.join(sources)} has an option {option!r}: leave out --{option.replace('_', '-')}")
    return [replace(options, **{name: None for name in options.given() if name not in names}) for names in known]


def compile_graph(program: Program, recompute: RecomputeOptions) -> TaskGraph:
    """Compile and verify a program with the recomputation that was asked for."""
    from schedir.compiler import compile_program

    return compile_program(program, recompute=recompute.recompute or "never", recompute_start=recompute.recompute_start or "early")
