"""From what stands on the command line (a schedule's name, a file, a function) to programs and task graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedir.cli.options import NUM_DEVICES, NUM_MICRO_BATCHES, RecomputeOptions, ScheduleOptions, ShapeOptions
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.ir.graph import TaskGraph
    from schedir.ir.program import Program


DEFAULT_COUNTS = {"num_devices": NUM_DEVICES, "num_micro_batches": NUM_MICRO_BATCHES}
"""What a name or function gets that needs a count which is not given; a file has its own."""


def read_program(source: str, shape: ShapeOptions, options: ScheduleOptions) -> Program:
    """Return the program of a named schedule, or that of a file or function."""
    from schedir.compiler import find_program

    return find_program(source, default_counts=DEFAULT_COUNTS, **shape.given() | options.given())


def is_timeline(source: str) -> bool:
    """Return True for the name of a file that holds a timeline (a Chrome trace)."""
    return source.endswith((".json", ".json.gz"))


def options_for(sources: Sequence[str], options: ScheduleOptions) -> list[ScheduleOptions]:
    """Return for each of several schedules the given options that it has; raise ArgumentError for one that none has.

    Only named schedules are asked; files and functions get no options that are meant for others.
    """
    from schedir.interop.program_files import names_program_file
    from schedir.schedules.registry import find_schedule

    others = [source for source in sources if names_program_file(source) or is_timeline(source)]
    known = [set() if source in others else set(find_schedule(source).options) for source in sources]
    for option in options.given():
        if not any(option in names for names in known):
            flag = f"--{option.replace('_', '-')}"
            raise ArgumentError(f"{flag}: none of {', '.join(sources)} has an option {option}: leave it out")
    return [options.only(names) for names in known]


def compile_graph(program: Program, recompute: RecomputeOptions) -> TaskGraph:
    """Compile and verify a program with the recomputation that was asked for."""
    from schedir.compiler import compile_program

    return compile_program(program, recompute=recompute.recompute or "never", recompute_start=recompute.recompute_start or "early")
