"""From a name, a program or a trace file to a verified task graph: the one way in for simulators, executors and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from schedir.errors import ArgumentError, FormatError, ProgramError, SchedirError
from schedir.interop.program_files import load_program, names_program_file, save_program
from schedir.ir import verify
from schedir.ir.action import Kind
from schedir.ir.action_table import ActionTable
from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.compile_options import CompileOptions
from schedir.ir.deadlock import explain_deadlock
from schedir.ir.expect import expect, expect_path
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import compute_lane
from schedir.ir.order_search import BlockedError, Precedence, find_order
from schedir.ir.pairs import PairReads
from schedir.ir.program import Program
from schedir.ir.text import parse_program
from schedir.lowering.across import Together, check_common_update, check_skips, check_ties
from schedir.lowering.insertion import ComputeTasks, place_tasks
from schedir.lowering.recompute import check_start, parse_modes, recomputed
from schedir.lowering.updates import Updates, place_updates
from schedir.lowering.versions import Reads, read_versions
from schedir.lowering.wires import Wires, connect
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
    return _assemble(table, options, tasks=tasks, updates=updates, reads=reads, wires=wires)


def _assemble(
    table: ActionTable, options: CompileOptions, *, tasks: ComputeTasks, updates: Updates, reads: Reads, wires: Wires
) -> TaskGraph:
    program = table.program
    num_compute = len(tasks.kind)
    columns = _Columns(table.program, tasks, updates=updates, reads=reads)
    lane_start = np.concatenate((tasks.lane_start, num_compute + np.cumsum(wires.lane_sizes))).astype(np.int64)
    compute_lanes = tuple(map(compute_lane, range(program.num_devices)))
    precedence = Precedence(
        lane_start,
        wires.edge_start,
        wires.edge_source,
        program.num_devices,
        num_reductions=int((wires.kind == Kind.REDUCE).sum()),
        period=_periods(program, tasks, wires) if options.common_update else None,
    )
    try:
        topology = find_order(precedence)
    except BlockedError as blocked:
        raise explain_deadlock(
            program, blocked.waiting, precedence=precedence, entry_task=tasks.entry_task, label=tasks.label
        ) from None
    return TaskGraph(
        program=program,
        options=options,
        kind=_joined(tasks.kind, wires.kind, np.int8),
        stage=_joined(tasks.stage, wires.stage, np.int32),
        micro_batch=_joined(tasks.micro_batch, wires.micro_batch, np.int32),
        device=_joined(tasks.device, wires.device, np.int32),
        direction=_joined(tasks.direction, wires.direction, np.int8),
        version=_joined(columns.version, wires.version, np.int32),
        horizon=_joined(columns.horizon, np.zeros(len(wires.kind), np.int16), np.int16),
        predicted_by=_joined(columns.predicted_by, np.full(len(wires.kind), -1, np.int32), np.int32),
        pairs=columns.pairs(),
        lanes=compute_lanes + wires.lanes,
        lane_start=frozen_array(lane_start, np.int64),
        edge_start=frozen_array(wires.edge_start, np.int64),
        edge_source=frozen_array(wires.edge_source, np.int32),
        edge_kind=frozen_array(wires.edge_kind, np.int8),
        round_size=frozen_array(updates.round_size, np.int32),
        topology=topology,
    )


def _periods(program: Program, tasks: ComputeTasks, wires: Wires) -> Ints:
    """Return between which common updates every task stands: the mini-batch, of updates the next one."""
    period = np.concatenate((tasks.micro_batch, wires.micro_batch)) // program.num_micro_batches
    period[tasks.update_task] += 1
    return period


def _joined(of_compute: Ints, of_wires: Ints, dtype: type[np.signedinteger[Any]]) -> Ints:
    """Return one read-only column over compute tasks and what lies between devices."""
    column = np.concatenate((of_compute, of_wires), dtype=dtype, casting="unsafe")
    column.flags.writeable = False
    return column


class _Columns:
    """Versions, horizons and predictions of the compute tasks."""

    def __init__(self, program: Program, tasks: ComputeTasks, *, updates: Updates, reads: Reads) -> None:
        self._program, self._tasks, self._reads = program, tasks, reads
        num_compute = len(tasks.kind)
        self._maker = {direction: self._makers(direction) for direction in (0, 1)}
        key = tasks.stage.astype(np.int64) * program.total_micro_batches + tasks.micro_batch
        self.version, self.horizon, self.predicted_by = self._of(tasks.kind, key, tasks.direction)
        self.version[tasks.update_task], self.horizon[tasks.update_task] = updates.version, 0
        self.predicted_by[tasks.update_task] = -1
        assert len(self.version) == num_compute

    def _makers(self, direction: int) -> Ints | None:
        """Task of the prediction that a key reads, by key; None where nothing is predicted."""
        predictions = self._reads.predictions
        if predictions is None or not len(predictions.stage):
            return None
        m = self._program.num_micro_batches
        chosen = predictions.direction == direction
        if self._reads.backward_on_stash:
            chosen = np.ones(len(chosen), bool)
        maker = np.full((self._program.num_stages, self._program.num_mini_batches), -1, np.int64)
        maker[predictions.stage[chosen], predictions.micro_batch[chosen] // m] = self._tasks.prediction_task[chosen]
        return np.repeat(maker, m, axis=1).reshape(-1)

    def _of(self, kind: Ints, key: Ints, direction: Ints) -> tuple[Ints, Ints, Ints]:
        reads = self._reads
        backwards = direction == 1
        # one and the same array where the rule lets all read alike
        if reads.weight_grad_version is reads.backward_version is reads.forward_version:
            version = reads.forward_version[key]
        else:
            version = np.where(backwards, reads.backward_version[key], reads.forward_version[key])
            if reads.weight_grad_version is not reads.backward_version:
                version = np.where(kind == Kind.WEIGHT_GRAD, reads.weight_grad_version[key], version)
        predicted_by = np.full(len(key), -1, np.int32)
        if reads.predictions is None:
            return version, np.zeros(len(key), np.int16), predicted_by
        horizon = np.where(backwards, reads.backward_horizon[key], reads.forward_horizon[key])
        for side, maker in self._maker.items():
            if maker is not None:
                chosen = (direction == side) & (kind != Kind.PREDICT)
                predicted_by[chosen] = maker[key[chosen]]
        return version, horizon, predicted_by

    def pairs(self) -> PairReads:
        pairs = self._program.pairs
        key = pairs.stage.astype(np.int64) * self._program.total_micro_batches + pairs.micro_batch
        version, horizon, predicted_by = self._of(pairs.kind, key, np.ones(len(key), np.int8))
        return PairReads(
            task=frozen_array(self._tasks.entry_task[pairs.row], np.int32),
            kind=pairs.kind,
            stage=pairs.stage,
            micro_batch=pairs.micro_batch,
            version=frozen_array(version, np.int32),
            horizon=frozen_array(horizon, np.int16),
            predicted_by=frozen_array(predicted_by, np.int32),
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
    options = stored.options
    try:
        return compile_program(
            parse_program(stored.program),
            recompute=options.recompute,
            recompute_start=options.recompute_start,
            skips=options.skips,
            ties=options.ties,
            common_update=options.common_update,
        )
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
    "find_program",
    "load_program",
    "load_timeline",
    "load_timelines",
    "save_program",
]
