"""`schedir compare`: schedules side by side, two timelines against each other, or, with a model, predicted and trained."""

from __future__ import annotations

from typing import Annotated

import typer

from schedir.cli.compare_options import CompareOutput, CompareShape
from schedir.cli.flags import as_command
from schedir.cli.options import CostOptions, EngineOptions, RecomputeOptions, ScheduleOptions, SizeOptions


@as_command
def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SCHEDULE...|TIMELINE...", help="Schedules (names, files, functions), or timeline files."),
    ],
    *,
    output: CompareOutput,
    shape: CompareShape,
    costs: CostOptions,
    options: ScheduleOptions,
    recompute: RecomputeOptions,
    sizes: SizeOptions,
    engine: EngineOptions,
) -> None:
    """Put schedules side by side on the same work."""
    from schedir.cli.sources import is_timeline

    if any(map(is_timeline, sources)):
        from schedir.cli.compare_timelines import compare_timelines

        compare_timelines(sources, output)
        return
    from schedir.cli.compare_schedules import Common, compare_side_by_side

    common = Common(costs=costs, recompute=recompute, sizes=sizes, engine=engine)
    compare_side_by_side(sources, common, output=output, shape=shape, options=options)
