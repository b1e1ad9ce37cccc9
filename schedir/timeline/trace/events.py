"""A timeline as events of a Chrome trace, in the form that Perfetto shows well (docs: "Trace Event Format").

process "device 0"      pid = device + 1 (a second timeline in the same file goes on behind)
  thread "compute"      tid = 1: slices F0, F1, B0, U0 …     the kind comes first, since colours are hashed from letters
  thread "to device 1"  tid = 2: what device 0 sends          (2), (3) where transfers overlap
  counter "memory"      bytes by class
flows                   arrows from the end of what makes something to the start of what uses it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind
from schedir.ir.lanes import LaneKind
from schedir.timeline.timeline import MemoryClass, MemorySteps, Timeline
from schedir.timeline.trace.rows import nanoseconds, rows_without_overlap

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """Where a timeline stands among those of one file."""

    number: int
    """0-based."""
    size: int
    """Timelines in the file."""
    first_pid: int
    """pid of its device 0."""
    suffix: str
    """Behind the names of its processes: ` simulated`."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What is numbered through a whole file, from 1."""

    threads: Iterator[int] = field(default_factory=lambda: count(1))
    flows: Iterator[int] = field(default_factory=lambda: count(1))


@dataclass(frozen=True, slots=True, eq=False)
class _Slices:
    """The drawn tasks; arrays over all tasks of the graph."""

    drawn: Ints
    """bool: recorded, and not a transfer or reduction that takes no time."""
    start: Ints
    """Nanoseconds since the first start."""
    end: Ints
    pid: Ints
    tid: Ints


def events_of(timeline: Timeline, group: Group, numbers: Numbers) -> list[Event]:
    """Return all events of a timeline."""
    graph, drawn = timeline.graph, _drawn(timeline)
    origin = float(np.nanmin(timeline.start))
    start, end, pid, tid = (np.zeros(len(drawn), np.int64) for _ in range(4))
    start[drawn], end[drawn] = nanoseconds(timeline.start[drawn], origin), nanoseconds(timeline.end[drawn], origin)
    slices = _Slices(drawn, start, end, pid, tid)
    events: list[Event] = []
    for device in range(graph.program.num_devices):
        events += _process_events(graph, slices, device, group=group, threads=numbers.threads)
    events += _slice_events(graph, slices, first_mini_batch=timeline.meta.get("first_mini_batch") or 0)
    events += _flow_events(graph, slices, numbers.flows)
    compute_threads = [event["tid"] for event in events if event["name"] == "process_name"]
    for device, steps in enumerate(timeline.memory or ()):
        events += _counter_events(steps, (group.first_pid + device, compute_threads[device]), origin)
    return events


def _drawn(timeline: Timeline) -> Ints:
    apart = np.arange(timeline.graph.num_tasks) >= timeline.graph.num_compute_tasks
    return timeline.recorded & ~(apart & (timeline.end <= timeline.start))


def _process_events(graph: TaskGraph, slices: _Slices, device: int, *, group: Group, threads: Iterator[int]) -> list[Event]:
    """Name the process of a device and give each of its lanes a thread, and further ones where slices overlap."""
    pid = group.first_pid + device
    events: list[Event] = []
    for number, lane in enumerate(graph.lanes):
        if lane.device != device:
            continue
        tasks = np.arange(graph.lane_start[number], graph.lane_start[number + 1])
        tasks = tasks[slices.drawn[tasks]]
        # a link without slices would be an empty row; a device without any says that it had nothing to do
        if not len(tasks) and lane.kind is not LaneKind.COMPUTE:
            continue
        rows = rows_without_overlap(slices.start[tasks], slices.end[tasks])
        tids = [next(threads) for _ in range(int(rows.max(initial=0)) + 1)]
        slices.pid[tasks], slices.tid[tasks] = pid, np.array(tids)[rows]
        if lane.kind is LaneKind.COMPUTE:  # timelines of one file stand device by device
            events.append(_named("process_name", pid, tids[0], name=f"device {device}{group.suffix}"))
            #   two timelines of two devices:    device 0 simulated, device 0 measured, device 1 simulated, device 1 measured
            events.append(_named("process_sort_index", pid, tids[0], sort_index=device * group.size + group.number))
        for row, tid in enumerate(tids):
            name = _thread_name(graph, number) + (f" ({row + 1})" if row else "")
            events += [_named("thread_name", pid, tid, name=name), _named("thread_sort_index", pid, tid, sort_index=tid)]
    return events


def _named(what: str, pid: int, tid: int, **args: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _thread_name(graph: TaskGraph, number: int) -> str:
    lane = graph.lanes[number]
    return {LaneKind.COMPUTE: "compute", LaneKind.LINK: f"to device {lane.peer}", LaneKind.REDUCE: str(lane)}[lane.kind]


def _slice_events(graph: TaskGraph, slices: _Slices, *, first_mini_batch: int) -> Iterator[Event]:
    """Yield the tasks, numbered as the run is that the timeline may be a part of: `first_mini_batch` is that of its first one."""
    # column by column to Python's numbers: a look into arrays task by task costs more than all the rest of the writing
    tasks = np.flatnonzero(slices.drawn)
    m = graph.program.num_micro_batches
    columns = (
        graph.kind,
        graph.stage,
        graph.micro_batch.astype(np.int64) + first_mini_batch * m,
        graph.direction,
        graph.version,
        graph.horizon,
        slices.pid,
        slices.tid,
        slices.start,
        slices.end,
    )
    rows = zip(tasks.tolist(), *(column[tasks].tolist() for column in columns), strict=True)
    names = [_slice_name(kind) for kind in Kind]
    for task, kind, stage, j, direction, version, horizon, pid, tid, start, end in rows:
        args: dict[str, Any] = {"task": task, "stage": stage, "micro_batch": j, "mini_batch": j // m}
        if version >= 0:
            args["version"] = version
        if horizon:
            args["horizon"] = horizon
        if kind == Kind.OVERLAPPED:
            args["actions"] = graph.label(task)
        yield {
            "ph": "X",
            "name": f"{names[kind][direction]}{j}",
            "cat": _CATEGORIES.get(kind, "user_annotation"),
            "pid": pid,
            "tid": tid,
            # the format's unit is the microsecond; whole nanoseconds leave at most three digits behind the point
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": args,
        }


_CATEGORIES = {Kind.TRANSFER: "transfer", Kind.REDUCE: "reduce"}
"""Compute slices have the category that torch's profiler gives to `record_function`."""


def _slice_name(kind: Kind) -> tuple[str, str]:
    """Return what stands before the micro-batch in a slice's name, forwards and backwards."""
    if kind is Kind.TRANSFER:
        return f"{kind.letter}F", f"{kind.letter}B"
    return ("F&B", "F&B") if kind is Kind.OVERLAPPED else (kind.letter, kind.letter)


def _flow_events(graph: TaskGraph, slices: _Slices, flow_ids: Iterator[int]) -> Iterator[Event]:
    """Draw an arrow for every edge between drawn slices of different lanes; past transfers that are not drawn."""
    source, target, kind = _flow_ends(graph, slices.drawn)
    lasting = slices.end > slices.start  # an arrow needs a slice to hold on to
    # inside the slice, a nanosecond before its end: at the end itself the next slice has begun, and the arrow would be its
    begin = np.maximum(np.minimum(slices.end[source] - 1, slices.start[target]), slices.start[source])
    kept = lasting[source] & lasting[target] & (begin <= slices.start[target])
    source, target, begin, kind = source[kept], target[kept], begin[kept], kind[kept]
    columns = (source, target, begin, slices.start[target], kind, graph.direction[target])
    places = [column.tolist() for column in (slices.pid, slices.tid)]
    for maker, user, left, arrived, edge, direction in zip(*(column.tolist() for column in columns), strict=True):
        name = "reduction" if edge == EdgeKind.REDUCE else ("activation", "gradient")[direction]
        common = {"id": next(flow_ids), "name": name, "cat": "hand-over"}
        yield {"ph": "s", **common, "pid": places[0][maker], "tid": places[1][maker], "ts": left / 1000}
        yield {"ph": "f", "bp": "e", **common, "pid": places[0][user], "tid": places[1][user], "ts": arrived / 1000}


def _flow_ends(graph: TaskGraph, drawn: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (source, target, kind) of the arrows, all drawn tasks."""
    target = np.repeat(np.arange(graph.num_tasks), np.diff(graph.edge_start))
    source, kind = graph.edge_source.astype(np.int64), graph.edge_kind
    hidden = (graph.kind[source] == Kind.TRANSFER) & ~drawn[source]
    # past a transfer that takes no time the arrow begins at its maker
    source[hidden] = graph.edge_source[graph.edge_start[source[hidden]]]  # a transfer has exactly one source
    lane = graph.lane
    kept = drawn[source] & drawn[target] & (kind != EdgeKind.ORDER) & (lane[source] != lane[target])
    return source[kept], target[kept], kind[kept]


def _counter_events(steps: MemorySteps, thread: tuple[int, int], origin: float) -> Iterator[Event]:
    """Count the bytes of every class that is held at some time; `thread` is (pid, tid)."""
    held = [(index, name.value) for index, name in enumerate(MemoryClass) if steps.by_class[:, index].any()]
    times = np.maximum(nanoseconds(steps.time, origin), 0)  # what is held before the first task is so when it starts
    # of steps at one nanosecond the last: what a viewer would show for no time at all
    last = np.concatenate((times[1:] > times[:-1], [True])) if len(times) else np.zeros(0, bool)
    for time, values in zip(times[last].tolist(), steps.by_class[last].tolist(), strict=True):
        yield {
            "ph": "C",
            "name": "memory",
            "pid": thread[0],
            "tid": thread[1],
            "ts": time / 1000,
            "args": {name: values[index] for index, name in held},
        }


def groups_of(timelines: Sequence[Timeline]) -> list[Group]:
    """Return where each timeline stands in a file; their names tell them apart by source, and by number if need be."""
    sources = [timeline.source for timeline in timelines]
    groups, first_pid = [], 1
    for number, timeline in enumerate(timelines):
        alike = sources.count(timeline.source)
        suffix = f" {timeline.source}" if len(timelines) > 1 else ""
        suffix += f" {sources[: number + 1].count(timeline.source)}" if alike > 1 else ""
        groups.append(Group(number, len(timelines), first_pid, suffix))
        first_pid += timeline.graph.program.num_devices
    return groups


def all_events(timelines: Sequence[Timeline]) -> list[Event]:
    """Return the events of all timelines of one file."""
    numbers = Numbers()
    pairs = zip(timelines, groups_of(timelines), strict=True)
    return [event for timeline, group in pairs for event in events_of(timeline, group, numbers)]
