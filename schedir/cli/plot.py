"""`schedir plot`: draw timelines, of files or of schedules that are simulated for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedir.cli.flags.flags import as_command, flag, refuse_all, switch
from schedir.cli.flags.options import ChoosingOptions, CostOptions, EngineOptions, GraphOptions, ShapeOptions, SizeOptions
from schedir.cli.flags.orders import OrderOptions
from schedir.cli.flags.values import length, natural, path, text
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """Picture."""

    output: Path | None = flag("--output/-o", path, "FILE", "The picture: .pdf, .svg or .png. Required.")
    width: float | None = flag("--width", length, "INCHES", "Width; the style's own if not given.")
    font_size: float | None = flag("--font-size", length, "POINTS", "Size of letters; the style's own if not given.")
    color_by: str | None = flag("--color-by", text, "kind|stage|mini-batch", "What colours tell apart; kind if not given.")
    number_from: int | None = flag(
        "--number-from", natural, "0|1", "Number of the first device, stage and micro-batch; 0 if not given."
    )
    memory: bool = switch("--memory", "Draw what every device holds over time, too.")
    links: bool = switch("--links", "Draw a row for every link, too.")
    style: str | None = flag("--style", text, "paper|screen|gray", "What the picture is for; paper if not given.")
    title: str | None = flag("--title", text, "TEXT", "Stands above the picture in place of its first line.")

    def given(self) -> dict[str, Any]:
        """Return the arguments of plots.gantt that were given."""
        names = ("width", "font_size", "color_by", "number_from", "style", "title")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None} | {"memory": self.memory, "links": self.links}


@as_command
def plot(
    sources: Annotated[
        list[str], typer.Argument(metavar="FILE|SCHEDULE...", help="Timelines (.json, .json.gz) and schedules, one panel each.")
    ],
    *,
    picture: PictureOptions,
    shape: ShapeOptions,
    costs: CostOptions,
    options: ChoosingOptions,
    order: OrderOptions,
    lowering: GraphOptions,
    sizes: SizeOptions,
    engine: EngineOptions,
) -> None:
    """Draw timelines: files that simulate --trace and compare --model wrote, and schedules, which are simulated first."""
    from schedir.cli.flags.orders import predict_schedule
    from schedir.cli.flags.prediction import Common
    from schedir.cli.flags.sources import is_timeline, options_for

    if picture.output is None:
        raise ArgumentError("plot needs a file for its picture: give --output FILE, as .pdf, .svg or .png")
    from plots import gantt, picture_format, save
    from schedir.compiler import load_timelines

    picture_format(picture.output)
    if all(map(is_timeline, sources)):
        refuse_all((shape, costs, options, order, lowering, sizes, engine), "timelines of files are drawn as they are")
    order.check(options, sources)
    chosen = options_for(sources, options)
    common = Common(costs=costs, lowering=lowering, sizes=sizes, engine=engine)
    timelines: list[Timeline] = []
    lines: list[str | None] = []
    shapes = _shapes(sources, chosen, shape)
    for source, own in zip(sources, chosen, strict=True):
        if is_timeline(source):
            timelines += load_timelines(Path(source))
        else:
            timeline, line = predict_schedule(source, common, shape=shapes[source], options=own, order=order)
            timelines.append(timeline)
            lines.append(line)
    print(f"wrote {save(gantt(*timelines, **picture.given()), picture.output)}")
    for said in filter(None, lines):
        print(f"note: {said}")


def _shapes(sources: Sequence[str], chosen: Sequence[ChoosingOptions], shape: ShapeOptions) -> dict[str, ShapeOptions]:
    """Return the shapes of schedules, with equally many mini-batches where the command does not say how many.

    That is as many as a file has, else as the pictures of `compare` show. A file that cannot be repeated so often stays as it is.
    """
    from schedir.cli.flags.sources import is_timeline, read_program
    from schedir.interop.program_files import names_program_file
    from schedir.ir.repetition import is_repeatable
    from schedir.workflows.compare_schedules import FIGURE_MINI_BATCHES

    pairs = [pair for pair in zip(sources, chosen, strict=True) if not is_timeline(pair[0])]
    programs = {source: read_program(source, shape, options) for source, options in pairs}
    counts = {source: program.num_mini_batches for source, program in programs.items()}
    if shape.mini_batches or len(set(counts.values())) < 2:
        return dict.fromkeys(programs, shape)
    own = max((count for source, count in counts.items() if names_program_file(source)), default=1)
    wanted = own if own > 1 else min(FIGURE_MINI_BATCHES, max(counts.values()))
    alike = replace(shape, mini_batches=wanted)
    kept = {source for source in programs if names_program_file(source) and not is_repeatable(programs[source], wanted)}
    return {source: shape if source in kept else alike for source in programs}
