"""From what stands on the command line (a schedule's name, a file, a function) to programs and task graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from schedir.cli.flags.options import NUM_DEVICES, NUM_MICRO_BATCHES, GraphOptions, ScheduleOptions, ShapeOptions
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.ir.graph import TaskGraph
    from schedir.ir.program import Program


AnyOptions = TypeVar("AnyOptions", bound=ScheduleOptions)

DEFAULT_COUNTS = {"num_devices": NUM_DEVICES, "num_micro_batches": NUM_MICRO_BATCHES}
"""What a name or function gets that needs a count which is not given; a file has its own."""


def read_program(source: str, shape: ShapeOptions, options: ScheduleOptions) -> Program:
    """Return the program of a named schedule, or that of a file or function."""
    from schedir.compiler import find_program

    return find_program(source, default_counts=DEFAULT_COUNTS, **shape.given() | options.given())


def is_timeline(source: str) -> bool:
    """Return True for the name of a file that holds a timeline (a Chrome trace)."""
    return source.endswith((".json", ".json.gz"))


def options_for(sources: Sequence[str], options: AnyOptions) -> list[AnyOptions]:
    """Return for each of several schedules the given options that it has; raise ArgumentError for one that none has.

    Functions get what stands behind --option and no named schedule has; files get nothing that is meant for others.
    """
    from schedir.interop.program_files import SUFFIXES, names_program_file
    from schedir.schedules.registry import find_schedule

    functions = [source for source in sources if names_program_file(source) and not source.lower().endswith(SUFFIXES)]
    files = [source for source in sources if is_timeline(source) or (names_program_file(source) and source not in functions)]
    known = {source: set(find_schedule(source).options) for source in sources if source not in functions and source not in files}
    named = set().union(*known.values())
    own = {name for name, _ in options.option} - named
    for option in options.given():
        if option not in named and not (option in own and functions):
            flag = f"--option {option}" if option in own else f"--{option.replace('_', '-')}"
            raise ArgumentError(f"{flag}: none of {', '.join(sources)} has an option {option}: leave it out")
    return [options.only(own if source in functions else known.get(source, ())) for source in sources]


def compile_graph(program: Program, lowering: GraphOptions) -> TaskGraph:
    """Compile and verify a program with the recomputation, and what reaches over stages, that were asked for."""
    from schedir.compiler import compile_with

    return compile_with(program, lowering.options())
