"""`schedir plot`: draw timelines, of files or of schedules that are simulated for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedir.cli.flags import as_command, flag, switch
from schedir.cli.options import CostOptions, EngineOptions, RecomputeOptions, ScheduleOptions, ShapeOptions, SizeOptions
from schedir.cli.orders import OrderOptions
from schedir.cli.values import length, natural, path, text
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """Picture."""

    output: Path | None = flag("--output/-o", path, "FILE", "The picture: .pdf, .svg or .png.")
    width: float | None = flag("--width", length, "INCHES", "Width; the style's own if not given.")
    font_size: float | None = flag("--font-size", length, "POINTS", "Size of letters; the style's own if not given.")
    color_by: str | None = flag("--color-by", text, "kind|stage|mini-batch", "What colours tell apart; kind if not given.")
    number_from: int | None = flag("--number-from", natural, "0|1", "Number of the first device, stage and micro-batch.")
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
    options: ScheduleOptions,
    order: OrderOptions,
    recompute: RecomputeOptions,
    sizes: SizeOptions,
    engine: EngineOptions,
) -> None:
    """Draw timelines: files that simulate --trace and compare --model wrote, and schedules, which are simulated first."""
    from schedir.cli.orders import predict_schedule
    from schedir.cli.prediction import Common
    from schedir.cli.sources import is_timeline, options_for

    if picture.output is None:
        raise ArgumentError("plot needs a file for its picture: give --output FILE, as .pdf, .svg or .png")
    from plots import gantt, picture_format, save
    from schedir.compiler import load_timelines

    picture_format(picture.output)
    chosen = options_for(sources, options)
    common = Common(costs=costs, recompute=recompute, sizes=sizes, engine=engine)
    timelines: list[Timeline] = []
    lines: list[str | None] = []
    for source, own in zip(sources, chosen, strict=True):
        if is_timeline(source):
            timelines += load_timelines(Path(source))
        else:
            timeline, line = predict_schedule(source, common, shape=shape, options=own, order=order)
            timelines.append(timeline)
            lines.append(line)
    print(f"wrote {save(gantt(*timelines, **picture.given()), picture.output)}")
    for said in filter(None, lines):
        print(f"note: {said}")
