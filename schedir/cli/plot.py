"""`schedir plot`: draw timelines, of files or of schedules that are simulated for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedir.cli.flags.flags import as_command, flag, refuse_all, switch
from schedir.cli.flags.options import ChoosingOptions, ShapeOptions
from schedir.cli.flags.parts import Part, part
from schedir.cli.flags.prediction import Common
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
    part: Part | None = flag(
        "--part",
        part,
        "all|N|A-B",
        "Mini-batches that are drawn: all, N of the steady state, or A to B; some that can be read if not given.",
    )

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
    common: Common,
) -> None:
    """Draw timelines: files that simulate --trace and compare --model wrote, and schedules, which are simulated first."""
    from schedir.cli.flags.orders import check_order
    from schedir.cli.flags.parts import part_line
    from schedir.cli.flags.sources import is_timeline
    from schedir.cli.screen.progress import Underway

    if picture.output is None:
        raise ArgumentError("plot needs a file for its picture: give --output FILE, as .pdf, .svg or .png")
    from plots import gantt, picture_format, save

    picture_format(picture.output)
    if all(map(is_timeline, sources)):
        refuse_all((replace(shape, mini_batches=None), common), "timelines of files are drawn as they are")
    check_order(common, sources)
    with Underway(f"reads or predicts {', '.join(sources)}") as underway:
        timelines, lines = _timelines(sources, common, shape)
        drawn = _part(picture, shape.mini_batches, timelines, files=any(map(is_timeline, sources)))
        underway.now(f"draws {picture.output}", logged=True)
        place = save(gantt(*timelines, mini_batches=drawn, **picture.given()), picture.output)
    line = part_line(timelines, drawn, number_from=picture.number_from or 0)
    print(f"wrote {place}" + (f": {line}; --part all draws all" if line else ""))
    for said in lines:
        print(f"note: {said}")


def _timelines(sources: Sequence[str], common: Common, shape: ShapeOptions) -> tuple[list[Timeline], list[str]]:
    """Return a timeline for every schedule, all on the same work, and those of files, as they stand; also what is to be said."""
    from schedir.cli.flags.equal_work import predict_alike
    from schedir.cli.flags.sources import is_timeline, options_for
    from schedir.compiler import load_timelines

    chosen = options_for(sources, common.options)
    shapes = _shapes(sources, chosen, shape)
    own = {source: each for source, each in zip(sources, chosen, strict=True) if not is_timeline(source)}
    schedules = [source for source in sources if not is_timeline(source)]
    predicted, lines = (
        predict_alike(
            schedules,
            common,
            shapes=[shapes[source] for source in schedules],
            options=[own[source] for source in schedules],
        )
        if schedules
        else ([], [])
    )
    coming = iter(predicted)
    found = [load_timelines(Path(source)) if is_timeline(source) else (next(coming),) for source in sources]
    return [timeline for each in found for timeline in each], lines


def _part(picture: PictureOptions, count: int | None, timelines: Sequence[Timeline], *, files: bool) -> Part | None:
    """Return which mini-batches are drawn: those that are asked for, else so many as --mini-batches says, else what can be read."""
    from schedir.cli.flags.parts import readable_part

    if isinstance(picture.part, tuple):
        first, last = (number - (picture.number_from or 0) for number in picture.part)
        return first, last
    return picture.part or count or readable_part(timelines, from_start=not files)


def _shapes(sources: Sequence[str], chosen: Sequence[ChoosingOptions], shape: ShapeOptions) -> dict[str, ShapeOptions]:
    """Return the shapes of schedules, with equally many mini-batches where the command does not say how many.

    That is as many as a file has, else as many as the schedule that needs most for its steady state. A file that cannot be
    repeated so often stays as it is.
    """
    from schedir.cli.flags.sources import is_timeline, read_program
    from schedir.interop.program_files import names_program_file
    from schedir.ir.repetition import is_repeatable

    pairs = [pair for pair in zip(sources, chosen, strict=True) if not is_timeline(pair[0])]
    programs = {source: read_program(source, shape, options) for source, options in pairs}
    counts = {source: program.num_mini_batches for source, program in programs.items()}
    if shape.mini_batches or len(set(counts.values())) < 2:
        return dict.fromkeys(programs, shape)
    own = max((count for source, count in counts.items() if names_program_file(source)), default=1)
    alike = replace(shape, mini_batches=own if own > 1 else max(counts.values()))
    wanted = alike.mini_batches or 1
    kept = {source for source in programs if names_program_file(source) and not is_repeatable(programs[source], wanted)}
    return {source: shape if source in kept else alike for source in programs}
