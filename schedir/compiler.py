"""From a name, a program or a trace file to a verified task graph: the one way in for simulators, executors and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schedir.errors import ArgumentError, FormatError, ProgramError, SchedirError
from schedir.expect import expect, expect_path
from schedir.interop.program_files import load_program, names_program_file, save_program
from schedir.ir.checks import verify
from schedir.ir.compile_options import CompileOptions
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.text import parse_program
from schedir.ir.program import Program
from schedir.lowering.across import Together, check_common_update, check_skips, check_ties
from schedir.lowering.assembly import assemble
from schedir.lowering.insertion import place_tasks
from schedir.lowering.recompute import check_start, parse_modes, recomputed
from schedir.lowering.updates import place_updates
from schedir.lowering.versions import read_versions
from schedir.lowering.wires import connect
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Timeline
from schedir.timeline.trace.checks import check_stored
from schedir.timeline.trace.trace import StoredTimeline, read_trace


def find_program(source: str | Path, *, default_counts: Mapping[str, int] | None = None, **options: Any) -> Program:
    """Return the program of a schedule's name, a file or a function, whichever `source` is.

    Options are those of `build_program` or `load_program`; those of None count as not given. A name needs num_devices and
    num_micro_batches; `default_counts` fills in those that a name or function needs and that are not given.
    """
    given = {key: value for key, value in options.items() if value is not None}
    if names_program_file(source):
        return load_program(source, default_counts=default_counts, **given)
    given = {**(default_counts or {}), **given}
    for name in ("num_devices", "num_micro_batches"):
        if name not in given:
            raise ArgumentError(f"schedule {source} needs {name}: give it")
    return build_program(str(source), **given)


def compile_program(
    program: Program,
    *,
    recompute: str | Sequence[str] = "never",
    recompute_start: str = "early",
    skips: Sequence[tuple[int, int]] = (),
    ties: Sequence[Sequence[int]] = (),
    common_update: bool = False,
) -> TaskGraph:
    """Lower a program to its task graph and prove it right.

    `recompute` is never, except-last, always or selective, one word or one per stage (comma-separated or a sequence).
    `recompute_start` is early (a recomputation needs its own stage's forward only) or on-gradient. `skips` lists skip
    connections as (source stage, target stage), `ties` stages that hold the same weights, as (0, 3): each updates them with the
    sum of all their gradients. `common_update` lets every update wait for the last gradients of all stages, as clipping by the
    norm of the model and the common skip of a loss scaler do. Raises ProgramError (its `grid` shows the culprit), DeadlockError,
    ArgumentError, and RefusedError for ties or a common update without a flush.
    """
    expect(program, Program, "program", remedy="give what build_program or load_program returns")
    expect(recompute, Iterable, "recompute", remedy="give never, except-last, always or selective, or one per stage")
    options = CompileOptions(
        recompute=parse_modes(recompute, program.num_stages),
        recompute_start=check_start(recompute_start),
        skips=check_skips(skips, program.num_stages),
        ties=check_ties(ties, program),
        common_update=check_common_update(common_update, program),
    )
    # each pass needs what the ones before it found: reads count the updates before them, tasks make room for what the reads
    # predict, wires join the tasks
    table = verify.check_program(program)
    updates = place_updates(table, Together(options.ties, options.common_update))
    reads = read_versions(table, updates)
    again = recomputed(table, options.recompute)
    tasks = place_tasks(table, updates, recomputed=again, predictions=reads.predictions)
    wires = connect(table, tasks, updates, options=options)
    return assemble(table, options, tasks=tasks, updates=updates, reads=reads, wires=wires)


def compile_with(program: Program, options: CompileOptions) -> TaskGraph:
    """Compile with options that are at hand as one: those of another graph, or of a file. Raises what `compile_program` does."""
    return compile_program(
        program,
        recompute=options.recompute,
        recompute_start=options.recompute_start,
        skips=options.skips,
        ties=options.ties,
        common_update=options.common_update,
    )


def load_timeline(path: str | Path, *, source: str | None = None) -> Timeline:
    """Return the timeline of a trace file, on its graph, compiled again.

    `source` (simulated or measured) chooses one where the file holds several. Raises FormatError (also where the stored program
    does not compile) and ArgumentError where the choice is not clear.
    """
    found = load_timelines(path)
    chosen = [timeline for timeline in found if source in (None, timeline.source)]
    if len(chosen) == 1:
        return chosen[0]
    held = ", ".join(timeline.source for timeline in found) or "none"
    wanted = "" if source is None else f"{source!r} of "
    raise ArgumentError(
        f"{path}: cannot choose {wanted}its timelines ({held}): name the source of exactly one, or take all with load_timelines"
    )


def load_timelines(path: str | Path) -> tuple[Timeline, ...]:
    """Return all timelines of a trace file; those of one program share one graph. Raises FormatError."""
    expect_path(path, "path", "give the path of a trace file")
    graphs: dict[tuple[str, CompileOptions], TaskGraph] = {}
    timelines = []
    for stored in read_trace(path):
        key = (stored.program, stored.options)
        # timelines of one program share its graph, so that they can be laid over each other
        if key not in graphs:
            graphs[key] = _compile_stored(stored, path)
        timelines.append(_on_graph(stored, graphs[key], path))
    return tuple(timelines)


def _compile_stored(stored: StoredTimeline, path: str | Path) -> TaskGraph:
    try:
        return compile_with(parse_program(stored.program), stored.options)
    except SchedirError as error:
        raise FormatError(f"{path}: the stored program does not compile: {error}") from error


def _on_graph(stored: StoredTimeline, graph: TaskGraph, path: str | Path) -> Timeline:
    columns = {"start_s": stored.start, "end_s": stored.end, "release_s": stored.release}
    for name, column in columns.items():
        if column is not None and len(column) != graph.num_tasks:
            raise FormatError(
                f"{path}: {name} has {len(column)} values, but its program makes {graph.num_tasks} tasks: write it again"
            )
    if stored.memory is not None and len(stored.memory) != graph.program.num_devices:
        raise FormatError(f"{path}: memory has {len(stored.memory)} of {graph.program.num_devices} devices: write it again")
    timeline = Timeline(
        graph=graph,
        start=stored.start,
        end=stored.end,
        source=stored.source,
        release=stored.release,
        memory=stored.memory,
        meta=stored.meta,
    )
    check_stored(timeline, str(path))
    return timeline


__all__ = [
    "ProgramError",
    "compile_program",
    "compile_with",
    "find_program",
    "load_program",
    "load_timeline",
    "load_timelines",
    "save_program",
]
