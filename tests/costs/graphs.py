"""Small graphs that the tests of costs share."""

from typing import Any

from schedir.compiler import compile_program
from schedir.costs.model import CostModel
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import evaluate
from schedir.ir.program import Program
from schedir.schedules.registry import build_program


def graph_of(name: str, devices: int, micro_batches: int, **options: Any) -> TaskGraph:
    return compile_program(build_program(name, num_devices=devices, num_micro_batches=micro_batches), **options)


def continuous_graph(name: str, devices: int, micro_batches: int, *, mini_batches: int) -> TaskGraph:
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=mini_batches)
    return compile_program(program)


def makespan(graph: TaskGraph, costs: CostModel) -> float:
    return float(evaluate(graph, costs.times(graph)).end.max())


def seconds_of(graph: TaskGraph, costs: CostModel, kind: Kind, *, stage: int = 0) -> list[float]:
    chosen = (graph.kind == kind) & (graph.stage == stage)
    found: list[float] = costs.times(graph).duration[chosen].tolist()
    return found


def split_graph() -> TaskGraph:
    """F, I and W of two micro-batches on one stage."""
    order = [Action(0, kind, j) for j in range(2) for kind in (Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)]
    return compile_program(Program.from_orders("zb-h1", [order], num_stages=1, num_micro_batches=2))


def overlapped_graph() -> TaskGraph:
    """Two stages on one device; F of the second micro-batch runs together with B of the first."""
    first, second = Kind.FORWARD, Kind.BACKWARD
    order: list[Entry] = [
        Action(0, first, 0),
        Action(1, first, 0),
        Action(1, second, 0),
        Overlapped(Action(0, first, 1), Action(0, second, 0)),
        Action(1, first, 1),
        Action(1, second, 1),
        Action(0, second, 1),
    ]
    return compile_program(Program.from_orders("pair", [order], num_stages=2, num_micro_batches=2))


def replicated_graph(*, replicas: int = 2) -> TaskGraph:
    """PipeDream with replicas of its first stage, which average their gradients."""
    shape = {"num_devices": replicas + 1, "num_micro_batches": 1, "num_mini_batches": 2 * replicas}
    return compile_program(build_program("pipedream", **shape, replicas=(replicas, 1)))


def halved_graph() -> TaskGraph:
    """One stage on two devices, each with one micro-batch of the mini-batch."""
    orders = [[Action(0, kind, j) for kind in (Kind.FORWARD, Kind.BACKWARD)] for j in range(2)]
    return compile_program(Program.from_orders("halves", orders, num_stages=1, num_micro_batches=2))
