"""`schedir simulate`: predict one schedule's timeline, and say what it means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedir.cli.flags.flags import as_command, flag, switch
from schedir.cli.flags.options import ShapeOptions
from schedir.cli.flags.prediction import Common
from schedir.cli.flags.prediction_options import VerdictOptions
from schedir.cli.flags.values import path
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOutput:
    """Output."""

    json: bool = switch("--json", "Print a schedir.simulate/1 object instead of text.")
    trace: Path | None = flag("--trace", path, "FILE", "Write a Chrome trace, which Perfetto opens (.json or .json.gz).")
    plot: Path | None = flag("--plot", path, "FILE", "Draw the timeline (.pdf, .svg or .png).")


@as_command
def simulate(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name, a file, or file.py:function.")],
    *,
    shape: ShapeOptions,
    common: Common,
    verdict: VerdictOptions,
    output: SimulateOutput,
) -> None:
    """Predict one schedule in every detail: time, bubble, idle causes, memory, weight versions."""
    from schedir.cli.flags.orders import check_order, predict_schedule
    from schedir.cli.flags.prediction import check_fit, spread_of
    from schedir.cli.flags.sources import is_timeline
    from schedir.cli.screen.progress import Underway
    from schedir.timeline.metrics.metrics import metrics
    from schedir.timeline.metrics.report import simulate_report

    check_order(common, [schedule])
    if output.trace is not None and output.trace.suffix and not is_timeline(str(output.trace)):
        raise ArgumentError(f"--trace {output.trace} is no name of a timeline: end it with .json or .json.gz")
    with Underway(f"simulates {schedule}") as underway:
        timeline, _ = predict_schedule(schedule, common, shape)
        figures = metrics(timeline, percentiles=spread_of(timeline.graph, common, verdict.samples))
        if verdict.require_fit:
            check_fit(figures)
        report = simulate_report(timeline, figures)
        underway.now("writes and draws", logged=True)
        written = _write(timeline, output)
    if output.json:
        import json

        print(json.dumps(report, indent=1, allow_nan=False))
        return
    from schedir.cli.screen.simulate_text import print_prediction

    print_prediction(timeline, figures, report)
    for line in written:
        print(f"wrote     {line}")


def _write(timeline: Timeline, output: SimulateOutput) -> list[str]:
    """Write the files that were asked for, the picture first: it is what may be refused; return what was written in words."""
    written = []
    if output.plot is not None:
        from plots import gantt, picture_format, save
        from schedir.cli.flags.parts import part_line, readable_part

        picture_format(output.plot)
        drawn = readable_part([timeline], from_start=True)
        line = part_line([timeline], drawn)
        place = save(gantt(timeline, mini_batches=drawn), output.plot)
        written.append(f"{place}" + (f": {line}; schedir plot --part all draws all" if line else ""))
    if output.trace is not None:
        from schedir.timeline.trace.trace import write_trace
        from schedir.workflows.files import make_parents

        make_parents(output.trace)
        write_trace(output.trace, timeline)
        written.append(str(output.trace))
    return written
