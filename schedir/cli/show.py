"""`schedir show`: the grid of a schedule, and what its task graph proves."""

from __future__ import annotations

from typing import Annotated

import typer

from schedir.cli.flags.flags import as_command
from schedir.cli.flags.options import GraphOptions, ScheduleOptions, ShapeOptions


@as_command
def show(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name, a file, or file.py:function.")],
    *,
    shape: ShapeOptions,
    options: ScheduleOptions,
    lowering: GraphOptions,
) -> None:
    """Print a schedule's grid and what its graph proves: versions, staleness, horizons, live activations."""
    from schedir.cli.flags.orders import fixed_line
    from schedir.cli.flags.sources import compile_graph, read_program
    from schedir.cli.screen.facts_text import print_facts
    from schedir.cli.screen.progress import Underway
    from schedir.cli.screen.screen import terminal_width
    from schedir.ir.notation.grid import grid

    with Underway(f"compiles {schedule}"):
        graph = compile_graph(read_program(schedule, shape, options), lowering)
        drawn = grid(graph, width=terminal_width())
    print(drawn)
    print()
    print_facts(graph)
    line = fixed_line(schedule)
    if line is not None:
        print(f"\n{line}")
