"""Pictures of graphs and spans for notebooks: what each bar stands for, handed to `schedir.ir.notation.svg`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.graph_data import GraphData
from schedir.ir.lanes import LaneKind
from schedir.ir.notation.order_picture import BarTexts, backward_texts
from schedir.ir.notation.svg import SvgBars, SvgFrame, bars_svg
from schedir.ir.order.in_order import TaskTimes, evaluate

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


def graph_svg(graph: GraphData) -> str:
    """Draw a graph at nominal durations."""
    units = np.array([NOMINAL_SECONDS.get(kind, 0.0) for kind in Kind])
    spans = evaluate(graph, TaskTimes(units[graph.kind]))
    title = f"{graph.program.name}: {graph.num_tasks} tasks, recompute {graph.options.recompute_text}"
    return spans_svg(graph, spans.start, spans.end, title=title, unit="forwards", notes=[NOMINAL_NOTE])


def spans_svg(graph: GraphData, start: Floats, end: Floats, *, title: str, unit: str = "s", notes: Sequence[str] = ()) -> str:
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
    names = BarTexts(
        graph.kind[tasks],
        graph.stage[tasks],
        graph.micro_batch[tasks],
        backward=backward_texts(bar_of_task[graph.pairs.task], graph.pairs),
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
