"""Programs written out by hand, and how long their graphs take if every kind of task has one duration."""

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.cells import parse_action
from schedir.ir.order.in_order import Spans, TaskTimes, evaluate
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.ir.weights import Rule, WeightRule
from schedir.schedules.registry import SCHEDULES


def written(*orders: str, m: int, n: int = 1, stages: int | None = None, weights: Rule | WeightRule = Rule.LATEST) -> Program:
    """Return the program of one text of actions for each device, with m micro-batches in each of n mini-batches."""
    entries = [[parse_action(cell) for cell in order.split()] for order in orders]
    rule = weights if isinstance(weights, WeightRule) else WeightRule(weights)
    return Program.from_orders(
        "written", entries, num_stages=stages or len(orders), num_micro_batches=m, num_mini_batches=n, weights=rule
    )


def accepted_shape(name: str, devices: int, micro_batches: int) -> tuple[int, int]:
    """Return the numbers if the schedule takes them, else an even number of devices and twice as many micro-batches."""
    schedule = SCHEDULES[name]
    if schedule.accepts(Shape(devices, micro_batches, 1, schedule.stages_per_device)) is None:
        return devices, micro_batches
    even = max(2, devices - devices % 2)
    assert schedule.accepts(Shape(even, 2 * even, 1, schedule.stages_per_device)) is None
    return even, 2 * even


def spans(graph: TaskGraph, *, transfer: float = 0.0, **seconds: float) -> Spans:
    """Evaluate a graph in order: F = R = 1, B = 2, I = W = 1, U = P = 0, a pair 3, unless `seconds` has the kind's word.

    Transfers take `transfer` as pure latency.
    """
    defaults = {"forward": 1.0, "recompute": 1.0, "backward": 2.0, "input_grad": 1.0, "weight_grad": 1.0, "overlapped": 3.0}
    by_kind = np.array([(defaults | seconds).get(kind.word, 0.0) for kind in Kind])
    latency = np.where(graph.kind == Kind.TRANSFER, transfer, 0.0)
    return evaluate(graph, TaskTimes(by_kind[graph.kind], latency))


def makespan(graph: TaskGraph, *, transfer: float = 0.0, **seconds: float) -> float:
    return float(spans(graph, transfer=transfer, **seconds).end.max())


def lane_of(graph: TaskGraph, device: int) -> str:
    """Return what a device computes, in order, as text: updates, predictions and recomputations included."""
    return " ".join(graph.label(task) for task in graph.lane_range(device))
