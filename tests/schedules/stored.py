"""Orders and values of tests/data/schedule_values.json, which public programs emit, and of zero_bubble.csv, from the paper."""

import csv
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.facts import facts
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import evaluate
from schedir.schedules.registry import build_program

DATA = Path(__file__).parents[1] / "data"
CELL = re.compile(r"(F|BW|B|W)(\d+)\.(\d+)")
KINDS = {"F": Kind.FORWARD, "B": Kind.INPUT_GRAD, "W": Kind.WEIGHT_GRAD, "BW": Kind.BACKWARD}
"""Their B is the input gradient alone."""


@cache
def rows() -> list[dict[str, Any]]:
    return list(json.loads((DATA / "schedule_values.json").read_text(encoding="utf-8"))["rows"])


def stored_orders(schedule: str) -> list[tuple[tuple[Entry, ...], ...]]:
    """Return the orders that public programs emit for p = 4, m = 8."""
    found = [row["order"] for row in rows() if row["schedule"] == schedule and "order" in row]
    assert found
    return [parse_order(order) for order in found]


def parse_order(order: list[str]) -> tuple[tuple[Entry, ...], ...]:
    """Read one string for each device."""
    return tuple(tuple(map(parse_cell, device.split())) for device in order)


def parse_cell(cell: str) -> Entry:
    """Read `F0.1`, `BW3.2` or a pair, `(F7.0+BW3.7)`: kind, micro-batch, stage."""
    actions = [Action(int(stage), KINDS[kind], int(j)) for kind, j, stage in CELL.findall(cell)]
    return Overlapped(*actions) if len(actions) == 2 else actions[0]


def makespans(schedule: str) -> set[tuple[float, float]]:
    """Return (transfer, makespan) of all rows of a schedule for p = 4, m = 8, F = I = W = 1."""
    return {(row["transfer"], row["makespan"]) for row in rows() if row["schedule"] == schedule}


def papers_rows() -> list[dict[str, str]]:
    lines = (DATA / "zero_bubble.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@dataclass(frozen=True)
class Timed:
    """A schedule under uniform costs."""

    graph: TaskGraph
    makespan: float
    spans: tuple[float, ...]
    """Last end - first start of every device."""
    idle: tuple[float, ...]
    """Idle time of every device in the whole makespan."""
    live: tuple[int, ...]
    """Most (stage, micro-batch) pairs alive on every device."""


def timed(name: str, devices: int, micro_batches: int, *, costs: UniformCosts | None = None, **options: Any) -> Timed:
    """Return a schedule's times under `costs`, F = I = W = 1 where not given."""
    graph = compile_program(build_program(name, num_devices=devices, num_micro_batches=micro_batches, **options))
    times = (costs or UniformCosts()).times(graph)
    spans = evaluate(graph, times)
    lanes = [slice(graph.lane_range(device).start, graph.lane_range(device).stop) for device in range(devices)]
    makespan = float(spans.end.max())
    return Timed(
        graph=graph,
        makespan=makespan,
        spans=tuple(float(spans.end[lane].max() - spans.start[lane].min()) for lane in lanes),
        idle=tuple(makespan - float(times.duration[lane].sum()) for lane in lanes),
        live=facts(graph).peak_live_activations,
    )
