"""Emulated devices against their prediction: every task sleeps its cost on real threads, and the timeline is measured.

    python benchmarks/emulated.py [--task-ms 20] [--mini-batches 2] [--repeats 3]

Nothing computes, so what is left is the executor's own machinery: queues, wake-ups, the order of the tasks. A difference would
mean that executor and simulator read the graph differently, or that the machinery costs more than the prediction says (nothing).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median

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


def main() -> None:
    """Print the table, and the largest error as its last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task-ms", type=float, default=20.0, help="forward; a backward takes twice as long")
    parser.add_argument("--mini-batches", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="the median is shown")
    arguments = parser.parse_args()
    print("| schedule | devices | micro-batches | recompute | transfer (ms) | predicted (s) | slept (s) | error | µs a task |")
    print("|---|---|---|---|---|---|---|---|---|")
    worst = 0.0
    for case in CASES:
        predicted, slept, tasks = measure(
            case, task_s=arguments.task_ms * 1e-3, num_mini_batches=arguments.mini_batches, repeats=arguments.repeats
        )
        middle = median(slept)
        error = predicted / middle - 1.0
        worst = max(worst, abs(error))
        print(
            f"| {case.schedule} | {case.num_devices} | {case.num_micro_batches} | {case.recompute} "
            f"| {case.transfer_tasks * arguments.task_ms:g} | {predicted:.4f} | {middle:.4f} | {100 * error:+.2f} % "
            f"| {1e6 * (middle - predicted) / tasks:.0f} |",
            flush=True,
        )
    print(f"\nlargest error {100 * worst:.2f} %")


if __name__ == "__main__":
    main()
