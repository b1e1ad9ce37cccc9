"""Emulated devices against their prediction: every task sleeps its cost on real threads, and the timeline is measured.

    python -m benchmarks.emulated [--task-ms 20] [--mini-batches 2] [--repeats 5] [--write]

Nothing computes, so what is left is the executor's own machinery: queues, wake-ups, the order of the tasks. A difference would
mean that executor and simulator read the graph differently, or that the machinery costs more than the prediction says (nothing).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median

from benchmarks.sections import machine, table, write_section
from executor import emulate
from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from simulator import simulate


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    schedule: str
    num_devices: int
    num_micro_batches: int
    recompute: str = "never"
    transfer_tasks: float = 0.0
    """Latency of a hand-over, in tasks."""

    def graph(self, num_mini_batches: int) -> TaskGraph:
        """Compile it."""
        shape = {"num_devices": self.num_devices, "num_micro_batches": self.num_micro_batches}
        return compile_program(build_program(self.schedule, **shape, num_mini_batches=num_mini_batches), recompute=self.recompute)


CASES = (
    Case("gpipe", 2, 4),
    Case("gpipe", 4, 8),
    Case("gpipe", 4, 8, recompute="always"),
    Case("gpipe", 8, 8, transfer_tasks=0.25),
    Case("1f1b", 2, 8),
    Case("1f1b", 4, 8),
    Case("1f1b", 4, 8, recompute="except-last"),
    Case("1f1b", 8, 16),
    Case("1f1b", 8, 16, transfer_tasks=0.25),
    Case("pipedream", 4, 1),
    Case("pipedream", 8, 2),
    Case("xpipe", 2, 2),
    Case("xpipe", 4, 4),
    Case("xpipe", 4, 4, transfer_tasks=0.25),
)


def measure(case: Case, *, task_s: float, num_mini_batches: int, repeats: int) -> tuple[float, list[float], int]:
    """Return the predicted makespan, those slept, and the tasks of the busiest device."""
    graph = case.graph(num_mini_batches)
    costs = UniformCosts(forward=task_s, backward=2 * task_s, transfer=case.transfer_tasks * task_s)
    predicted = simulate(graph, costs).makespan_s
    tasks = max(len(graph.lane_range(device)) for device in range(graph.program.num_devices))
    return predicted, [emulate(graph, costs).makespan_s for _ in range(repeats)], tasks


HEAD = ("schedule", "devices", "micro-batches", "recompute", "transfer", "predicted", "slept", "error", "a task")


def row(case: Case, task_s: float, predicted: float, *, slept: list[float], tasks: int) -> tuple[str, ...]:
    """Return one line of the table."""
    middle = median(slept)
    return (
        case.schedule,
        str(case.num_devices),
        str(case.num_micro_batches),
        case.recompute,
        f"{1e3 * case.transfer_tasks * task_s:g} ms",
        f"{predicted:.4f} s",
        f"{middle:.4f} s",
        f"{100 * (predicted / middle - 1):+z.2f} %",
        f"{1e6 * (middle - predicted) / tasks:.0f} µs",
    )


def main() -> None:
    """Print the table; `--write` puts it into docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task-ms", type=float, default=20.0, help="forward; a backward takes twice as long")
    parser.add_argument("--mini-batches", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="the median is shown")
    parser.add_argument("--write", action="store_true", help="replace the section in docs/performance.md")
    arguments = parser.parse_args()
    rows, errors = [], []
    for case in CASES:
        task_s = 1e-3 * arguments.task_ms
        found = measure(case, task_s=task_s, num_mini_batches=arguments.mini_batches, repeats=arguments.repeats)
        predicted, slept, tasks = found
        rows.append(row(case, task_s, predicted, slept=slept, tasks=tasks))
        errors.append(abs(predicted / median(slept) - 1))
        print(" | ".join(rows[-1]), flush=True)
    summary = f"Largest error {100 * max(errors):.2f} %, median {100 * median(errors):.2f} %. The goal is at most 1 %."
    text = f"{table(HEAD, rows)}\n\n{summary}"
    print(f"\n{text}")
    if arguments.write:
        write_section("Emulated devices", f"{introduction(arguments)}\n\n{text}")


def introduction(arguments: argparse.Namespace) -> str:
    """Say what was run where."""
    return (
        f"`python -m benchmarks.emulated --write`, on {machine()}; a forward sleeps {arguments.task_ms:g} ms, a backward twice as\n"
        f"long, one thread per device, {arguments.mini_batches} mini-batches; medians of {arguments.repeats} repeats. The last\n"
        "column is what a task of the busiest device takes beyond its cost."
    )


if __name__ == "__main__":
    main()
