"""Timelines as trace files: Chrome trace JSON that Perfetto opens, and that is read back without loss.

    {"traceEvents": […], "displayTimeUnit": "ms", "schedir": {"schema": "schedir.trace/1", "timelines": [
        {"source": "simulated", "program": "name = …", "compile": {…}, "start_s": […], "end_s": […], "release_s": null,
         "memory": null, "meta": {…}}]}}

The events are for the eye, in whole nanoseconds from the first start. The block `schedir` has the exact times, null for tasks
without a span, and what the task graph is made of again: the program's text and the compile options
(`schedir.compiler.load_timeline`).
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from schedir.errors import ArgumentError
from schedir.expect import expect
from schedir.files import replaced_whole, unwritten
from schedir.ir.arrays import Floats
from schedir.ir.compile_options import CompileOptions
from schedir.ir.notation.printing import print_program
from schedir.timeline.timeline import MemorySteps, Source, Timeline
from schedir.timeline.trace.events import all_events
from schedir.timeline.trace.fields import Fields, load_json

SCHEMA = "schedir.trace/1"


@dataclass(frozen=True, slots=True, eq=False)
class StoredTimeline:
    """A timeline as a file holds it: spans by task number, and the text and options that its graph is compiled from."""

    program: str
    options: CompileOptions
    source: Source
    start: Floats
    end: Floats
    release: Floats | None
    memory: tuple[MemorySteps, ...] | None
    meta: dict[str, Any]


def write_trace(path: str | Path, *timelines: Timeline) -> None:
    """Write timelines into one trace file, compressed where the name ends in `.gz`; the same timelines give the same bytes.

    The file is written beside its place and then renamed, so that no half of it is ever found there. Raises ArgumentError for
    no timeline, a timeline without spans, and a place that cannot be written to.
    """
    if not timelines:
        raise ArgumentError("write_trace got no timeline: give at least one")
    for timeline in timelines:
        expect(timeline, Timeline, "timeline", remedy="give what simulate, train(…).timeline or load_timeline returns")
        if not timeline.recorded.any():
            raise ArgumentError(f"timeline of {timeline.graph.program.name} has no spans: record at least one task")
    content = {
        "traceEvents": all_events(timelines),
        "displayTimeUnit": "ms",
        "schedir": {"schema": SCHEMA, "timelines": [_stored(timeline) for timeline in timelines]},
    }
    data = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    place = Path(path)
    if place.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)  # no time stamp: the same bytes on every run
    _write_whole(place, data)


def _write_whole(path: Path, data: bytes) -> None:
    try:
        with replaced_whole(path) as beside:
            beside.write_bytes(data)
    except OSError as error:
        raise unwritten(path, error, "give a file in a folder that exists") from None


def _stored(timeline: Timeline) -> dict[str, Any]:
    options = timeline.graph.options
    return {
        "source": timeline.source.value,
        "program": print_program(timeline.graph.program),
        "compile": {
            "recompute": list(options.recompute),
            "recompute_start": options.recompute_start,
            "skips": [list(skip) for skip in options.skips],
            "ties": [list(tie) for tie in options.ties],
            "common_update": options.common_update,
        },
        "start_s": _numbers(timeline.start),
        "end_s": _numbers(timeline.end),
        "release_s": None if timeline.release is None else _numbers(timeline.release),
        "memory": None if timeline.memory is None else [_steps(steps) for steps in timeline.memory],
        "meta": dict(timeline.meta),
    }


def _numbers(values: Floats) -> list[float | None]:
    """Return floats, whose shortest text in JSON is read back to the same bits; None for NaN, for which JSON has no word."""
    if not np.isnan(values).any():
        return list(values.tolist())
    return [None if isnan(value) else value for value in values.tolist()]


def _steps(steps: MemorySteps) -> dict[str, Any]:
    return {"time_s": steps.time.tolist(), "by_class": steps.by_class.tolist()}


def read_trace(path: str | Path) -> tuple[StoredTimeline, ...]:
    """Return the timelines of a trace file, with the times of `write_trace` to the last bit.

    Raises FormatError, in one line, for a file that is missing, broken or was not written by schedir.
    """
    content = Fields(load_json(path), str(path))
    block = content.block("schedir", missing="only traces that schedir wrote can be read back")
    block.expect("schema", SCHEMA)
    return tuple(_read(entry) for entry in block.blocks("timelines"))


def _read(entry: Fields) -> StoredTimeline:
    compiled = entry.block("compile")
    return StoredTimeline(
        program=entry.text("program"),
        options=CompileOptions(
            recompute=tuple(compiled.texts("recompute")),
            recompute_start=compiled.text("recompute_start"),
            skips=compiled.pairs("skips"),
            ties=compiled.groups("ties"),
            common_update=compiled.switch("common_update"),
        ),
        source=Source(entry.choice("source", tuple(Source))),
        start=entry.numbers("start_s"),
        end=entry.numbers("end_s"),
        release=None if entry.is_null("release_s") else entry.numbers("release_s"),
        memory=None if entry.is_null("memory") else tuple(_read_steps(steps) for steps in entry.blocks("memory")),
        meta=entry.block("meta").values,
    )


def _read_steps(entry: Fields) -> MemorySteps:
    return MemorySteps(entry.numbers("time_s"), entry.table("by_class"))
