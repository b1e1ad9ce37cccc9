"""Pictures of programs, graphs and spans for notebooks: what each bar stands for, handed to `schedir.ir.notation.svg`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.notation.svg import SvgBars, SvgFrame, bars_svg
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.ir.pairs import PairReads, Pairs
from schedir.ir.program import Program

NOMINAL_SECONDS = {
    Kind.FORWARD: 1.0,
    Kind.BACKWARD: 2.0,
    Kind.INPUT_GRAD: 1.0,
    Kind.WEIGHT_GRAD: 1.0,
    Kind.OVERLAPPED: 3.0,
    Kind.RECOMPUTE: 1.0,
}
"""Durations at which a graph is drawn that has no costs yet; updates, predictions and transfers take no time."""

NOMINAL_NOTE = "drawn at F = 1, B = 2, I = W = R = 1, pairs 3; updates, predictions and transfers take no time"


def program_svg(program: Program) -> str:
    """Draw the order of every device, one cell per entry."""
    device = program.device_of_entry()
    position = np.arange(program.num_entries) - program.device_start[device]
    lower = np.full(program.num_entries, -1)
    lower[program.pairs.row] = program.pairs.kind
    forward = np.where(program.kind == Kind.OVERLAPPED, np.int8(Kind.FORWARD), program.kind)
    names = _Names(
        program.kind,
        program.stage,
        program.micro_batch,
        backward=_backwards(program.pairs.row, program.pairs),
        several=program.num_stages > program.num_devices,
    )
    bars = SvgBars(
        device,
        position.astype(np.float64),
        (position + 1).astype(np.float64),
        forward,
        names.of,
        lower if len(program.pairs) else None,
    )
    micro_batches = f"{program.num_mini_batches} x {program.num_micro_batches} micro-batches"
    title = (
        f"{program.name}: {program.num_devices} devices, {program.num_stages} stages, {micro_batches}, weights {program.weights}"
    )
    lanes = [f"device {number}" for number in range(program.num_devices)]
    return bars_svg(bars, SvgFrame(title, lanes, "position in the device's order", ["order only: cells are no durations"]))


def graph_svg(graph: TaskGraph) -> str:
    """Draw a graph at nominal durations."""
    units = np.array([NOMINAL_SECONDS.get(kind, 0.0) for kind in Kind])
    spans = evaluate(graph, TaskTimes(units[graph.kind]))
    title = f"{graph.program.name}: {graph.num_tasks} tasks, recompute {graph.options.recompute_text}"
    return spans_svg(graph, spans.start, spans.end, title=title, unit="forwards", notes=[NOMINAL_NOTE])


def spans_svg(graph: TaskGraph, start: Floats, end: Floats, *, title: str, unit: str = "s", notes: Sequence[str] = ()) -> str:
    """Draw spans (NaN: none) on the compute lanes, and on links and reductions where they take time."""
    # False for NaN as well: a task without a span has no bar
    lasting = end > start
    shown = [
        index
        for index, lane in enumerate(graph.lanes)
        if lane.kind is LaneKind.COMPUTE or lasting[graph.lane_start[index] : graph.lane_start[index + 1]].any()
    ]
    # lanes without a bar have no row: the others move up
    row_of_lane = np.full(len(graph.lanes), -1)
    row_of_lane[shown] = np.arange(len(shown))
    row = row_of_lane[graph.lane]
    tasks = np.flatnonzero((row >= 0) & lasting)
    tasks = tasks[np.lexsort((start[tasks], row[tasks]))]
    lower = np.full(graph.num_tasks, -1)
    lower[graph.pairs.task] = graph.pairs.kind
    kind = np.where(graph.kind == Kind.OVERLAPPED, np.int8(Kind.FORWARD), graph.kind)
    bar_of_task = np.full(graph.num_tasks, -1)
    bar_of_task[tasks] = np.arange(len(tasks))
    names = _Names(
        graph.kind[tasks],
        graph.stage[tasks],
        graph.micro_batch[tasks],
        backward=_backwards(bar_of_task[graph.pairs.task], graph.pairs),
        several=graph.program.num_stages > graph.program.num_devices,
    )
    bars = SvgBars(
        row=row[tasks],
        start=start[tasks],
        end=end[tasks],
        kind=kind[tasks],
        texts=names.of,
        lower=lower[tasks] if len(graph.pairs) else None,
    )
    return bars_svg(bars, SvgFrame(title, [str(graph.lanes[index]) for index in shown], unit, notes))


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    """What may stand in a bar, longest first: `2F0`, `F0`, `F`; the stage only where devices host several."""

    kind: Ints
    stage: Ints
    micro_batch: Ints
    backward: Mapping[int, str]
    """By the bar's number: the backward half of an overlapped pair."""
    several: bool

    def of(self, index: int) -> tuple[str, ...]:
        """Return the texts of one bar."""
        kind, stage, micro_batch = int(self.kind[index]), int(self.stage[index]), int(self.micro_batch[index])
        if index in self.backward:
            forward = f"{stage}{Kind.FORWARD.letter}{micro_batch}"
            return f"{forward} {self.backward[index]}", forward
        letter = Kind(kind).letter
        full, short = f"{stage}{letter}{micro_batch}", f"{letter}{micro_batch}"
        return (full, short, letter) if self.several else (short, letter)


def _backwards(at: Ints, pairs: Pairs | PairReads) -> dict[int, str]:
    """Return the texts of backward halves by the number of their bar."""
    columns = (at.tolist(), pairs.stage.tolist(), pairs.kind.tolist(), pairs.micro_batch.tolist())
    return {bar: f"{stage}{Kind(kind).letter}{j}" for bar, stage, kind, j in zip(*columns, strict=True) if bar >= 0}
