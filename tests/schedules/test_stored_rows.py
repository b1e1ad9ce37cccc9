"""All rows of tests/data/schedule_values.json, column by column: p = 4, m = 8, F = I = W = 1, by eight public programs.

Twice: the order that the public program emits, timed by us, and the schedule of our own that answers to it.
"""

from typing import Any

import pytest

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from schedir.timeline.metrics.metrics import metrics
from simulator import simulate
from tests.schedules.stored import parse_order, rows, stored_orders

Row = dict[str, Any]

OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "1F1B": ("1f1b", {}),
    "DualPipeV": ("dualpipev", {}),
    "GPipe": ("gpipe", {"order": "fifo"}),
    "Hanayo wave (2 chunks/device)": ("hanayo", {}),
    "V-Half": ("v-half", {}),
    "ZB heuristic, max_mem=2p (ZB-H2 memory)": ("zb-h2", {"activation_limit": 8}),
    "ZB heuristic, max_mem=p (ZB-H1 memory)": ("zb-h1", {}),
    "ZB heuristic, no memory limit": ("zb-h2", {"activation_limit": 8}),
    "ZB-H1": ("zb-h1", {}),
    "ZB-H1 (zb1p)": ("zb-h1", {}),
    "ZB-H1 (zero-bubble)": ("zb-h1", {}),
    "ZB-H2": ("zb-h2", {}),
    "ZB-V": ("zb-v", {}),
    "ZB-V (zbv-formatted)": ("zb-v", {}),
    "interleaved 1F1B": ("interleaved-1f1b", {}),
    "interleaved zero bubble": ("interleaved-zb", {}),
    "looped BFS": ("looped-bfs", {}),
}
"""Our schedule and its options. Of 1F1B and GPipe with backwards split in two we have none: they waste the wait that I leaves."""

SPLIT = ("1F1B with B,W split (gradient sent before W)", "GPipe with B,W split (B then W per micro-batch)")

PEAKS = "peak_live_freed_after_weight_grad"
HANAYO, V, HEURISTIC = "Hanayo wave (2 chunks/device)", "ZB-V", "ZB heuristic, "
TWICE_P, NO_LIMIT = HEURISTIC + "max_mem=2p (ZB-H2 memory)", HEURISTIC + "no memory limit"

CONTRADICTED: dict[tuple[str, float, str], dict[str, Any]] = {
    # the rows say 52.3, as those of two other programs; the orders of these two pass 15 transfers on their longest path, not 13
    (V, 0.1, "rosinality/zeropipe"): {"makespan": 52.5, "bubble_fraction": 1 - 48 / 52.5},
    (V, 0.1, "sail-sg/zero-bubble-pipeline-parallelism"): {"makespan": 52.5, "bubble_fraction": 1 - 48 / 52.5},
}
"""(schedule, transfer, program): columns in which a row is not what its own program's order takes."""

BETTER: dict[tuple[str, float], dict[str, Any]] = {
    # a backward goes first, so that 8 and not up to 16 activations live, and 12 and not 18 transfers are on the longest path
    (HANAYO, 0.0): {PEAKS: [8, 8, 8, 8]},
    (HANAYO, 0.1): {PEAKS: [8, 8, 8, 8], "makespan": 55.2, "bubble_fraction": 1 - 48 / 55.2},
    # the same time in the memory of ZB-H2, 2p - 1
    (TWICE_P, 0.0): {PEAKS: [7, 7, 7, 7]},
    (TWICE_P, 0.1): {PEAKS: [7, 7, 7, 7]},
    (NO_LIMIT, 0.0): {PEAKS: [7, 7, 7, 7]},
    (NO_LIMIT, 0.1): {PEAKS: [7, 7, 7, 7]},
}
"""(schedule, transfer): columns in which our schedule is better than the row."""


def name_of(row: Row) -> str:
    return f"{row['schedule']}, c={row['transfer']}, {row['from']}"


def costs_of(row: Row) -> UniformCosts:
    names = ("forward", "input_grad", "weight_grad", "transfer")
    return UniformCosts(**{name: row[name] for name in names})


def columns_of(program: Program, row: Row) -> dict[str, Any]:
    """Return the columns of a row as we count them for a program."""
    figures = metrics(simulate(compile_program(program), costs_of(row)))
    return {
        "makespan": figures.makespan_s,
        "bubble_fraction": figures.bubble_fraction,
        "busy_per_device": [device.busy_s for device in figures.devices],
        PEAKS: [device.peak_live_activations for device in figures.devices],
    }


def wanted(row: Row, exceptions: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says, but for the exceptions; bubbles have six digits, some rows a makespan and nothing else."""
    names = [name for name in ("makespan", "bubble_fraction", "busy_per_device", PEAKS) if row[name] is not None]
    return {name: pytest.approx(exceptions.get(name, row[name]), abs=1e-6) for name in names}


def order_of(row: Row) -> Any:
    """Return the order of a row, or of the same program's row without transfers; None where no program's is stored."""
    found = [other for other in rows() if other["schedule"] == row["schedule"] and "order" in other]
    same = [other for other in found if other["from"] == row["from"]]
    return next((other["order"] for other in (row, *same, *found) if "order" in other), None)


def only(columns: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {name: columns[name] for name in names}


@pytest.mark.parametrize("row", [row for row in rows() if order_of(row)], ids=name_of)
def test_a_stored_order_takes_what_its_row_says(row: Row) -> None:
    program = Program.from_orders(
        "stored",
        parse_order(order_of(row)),
        num_stages=row["num_devices"] * row["stages_per_device"],
        num_micro_batches=row["num_micro_batches"],
    )
    stored = wanted(row, CONTRADICTED.get((row["schedule"], row["transfer"], row["from"]), {}))

    assert only(columns_of(program, row), stored) == stored


@pytest.mark.parametrize("row", [row for row in rows() if row["schedule"] not in SPLIT], ids=name_of)
def test_our_schedule_takes_what_the_row_says(row: Row) -> None:
    name, options = OURS[row["schedule"]]
    extra = options | ({"costs": costs_of(row)} if "activation_limit" in options else {})
    program = build_program(name, num_devices=row["num_devices"], num_micro_batches=row["num_micro_batches"], **extra)
    stored = wanted(row, BETTER.get((row["schedule"], row["transfer"]), {}))

    assert only(columns_of(program, row), stored) == stored


@pytest.mark.parametrize("name", ["1F1B", "GPipe", "ZB-H2"])
def test_our_order_is_that_of_all_public_programs(name: str) -> None:
    ours, options = OURS[name]
    program = build_program(ours, num_devices=4, num_micro_batches=8, **options)

    assert all(program.orders() == orders for orders in stored_orders(name))
