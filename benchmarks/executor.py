"""What the executor adds to training: time between tasks, and the cost of recording them.

    python -m benchmarks.executor [--mini-batches 6] [--repeats 9] [--write]

Overhead is the measured run less the longest path of the very durations that were measured in it, transfers taken as free, over
the tasks of a device: queues, wake-ups, the interpreter's own steps. On a busy machine cores taken away between two tasks count
too; the least of the repeats has the fewest of those. Runs with and without recording alternate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.sections import machine, table, write_section
from executor.model.pipeline import Pipeline
from executor.profiling.parts import copy_stages
from executor.recipe.ready_made import character_transformer, mlp
from executor.recipe.recipe import Recipe
from executor.run.clock import Recorder
from executor.training import Session
from executor.workers.team import OneProcess
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.in_order import TaskTimes, evaluate
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Timeline

DEVICES = 2

GOAL = """The goal is at most 50 µs a task where forwards take 5 ms or more. Most of it is the call that wakes a thread which
waits for a value; it is dearer on a virtual machine. A task behind which nobody is woken costs 4 to 10 µs."""


class Silent(Recorder):
    """Records nothing."""

    def begin(self, task: int) -> None:
        """Do nothing."""

    def finish(self, task: int) -> None:
        """Do nothing."""

    def finish_at_once(self, task: int) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table."""

    schedule: str
    make: Callable[[], Recipe]
    num_micro_batches: int
    recompute: str = "never"

    def graph(self, num_mini_batches: int) -> TaskGraph:
        """Compile it."""
        shape = {"num_devices": DEVICES, "num_micro_batches": self.num_micro_batches}
        program = build_program(self.schedule, **shape, num_mini_batches=num_mini_batches)
        return compile_program(program, recompute=self.recompute)


def large() -> Recipe:
    """Return a model whose forwards take about 5 ms a stage: 8 samples a micro-batch."""
    return character_transformer(mini_batch_size=64)


def small() -> Recipe:
    """Return a model whose forwards take about 1 ms a stage."""
    return mlp(mini_batch_size=256)


CASES = (
    Case("gpipe", large, 8),
    Case("1f1b", large, 8),
    Case("1f1b", large, 8, recompute="always"),
    Case("pipedream", large, 8),
    Case("xpipe", large, 8),
    Case("1f1b", small, 8),
)


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of one case; one entry per repeat."""

    forward_s: float
    """Median duration of a forward."""
    over_path: list[float]
    """Measured run over longest path - 1."""
    per_task_s: list[float]
    """Seconds beyond the longest path, by task of the device with most tasks."""
    recorded_over_silent: float
    """Seconds of a recorded run over those of a silent one, medians."""


def measure(case: Case, num_mini_batches: int, repeats: int) -> Result:
    """Train the case again and again, recorded and silent in turn; the first of each warms up."""
    graph, recipe = case.graph(num_mini_batches), case.make()
    stages = copy_stages(recipe.cut(DEVICES))
    pipeline = Pipeline(stages, loss=recipe.loss, optimizer=recipe.optimizer)
    data = list(islice(recipe.data(0), num_mini_batches))
    timelines: list[Timeline] = []
    seconds: dict[str, list[float]] = {"recorded": [], "silent": []}
    for number in range(repeats + 1):
        for name, recorder in (("recorded", Recorder(graph.num_tasks)), ("silent", Silent(graph.num_tasks))):
            session = Session(graph, pipeline, seed=0, team=OneProcess(timeout_s=600.0), recorder=recorder)
            try:
                begin = perf_counter()
                run = session.train(data)
                taken = perf_counter() - begin
            finally:
                session.close()
            if number:
                seconds[name].append(taken)
                timelines += [run.timelines[0]] if name == "recorded" else []
    overheads = [overhead(timeline) for timeline in timelines]
    return Result(
        forward_s=median(forward_seconds(timeline) for timeline in timelines),
        over_path=[fraction for fraction, _ in overheads],
        per_task_s=[per_task for _, per_task in overheads],
        recorded_over_silent=median(seconds["recorded"]) / median(seconds["silent"]),
    )


def overhead(timeline: Timeline) -> tuple[float, float]:
    """Return what the run takes beyond its longest path, as a fraction, and in seconds by task of the busiest device."""
    graph = timeline.graph
    duration = np.where(graph.kind == Kind.TRANSFER, 0.0, timeline.end - timeline.start)
    spans = evaluate(graph, TaskTimes(duration))
    path = float(spans.end.max() - spans.start.min())
    tasks = max(len(graph.lane_range(device)) for device in range(graph.program.num_devices))
    return timeline.makespan_s / path - 1.0, (timeline.makespan_s - path) / tasks


def forward_seconds(timeline: Timeline) -> float:
    """Return the median duration of a forward."""
    forward = timeline.graph.kind == Kind.FORWARD
    return float(np.median((timeline.end - timeline.start)[forward]))


def row(case: Case, found: Result) -> tuple[str, ...]:
    """Return one line of the table."""
    return (
        case.schedule,
        str(case.num_micro_batches),
        case.recompute,
        f"{1e3 * found.forward_s:.1f} ms",
        f"{100 * min(found.over_path):+.2f} %",
        f"{1e6 * min(found.per_task_s):.0f} µs",
        f"{1e6 * median(found.per_task_s):.0f} µs",
        f"{found.recorded_over_silent:.3f}",
    )


HEAD = (
    *("schedule", "micro-batches", "recompute", "forward"),
    *("over the longest path, least", "a task, least", "a task, median", "recorded / silent"),
)


def main() -> None:
    """Print the table; `--write` puts it into docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mini-batches", type=int, default=6, help="of one run")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="replace the section in docs/performance.md")
    arguments = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(row(case, measure(case, arguments.mini_batches, arguments.repeats)))
        print(" | ".join(rows[-1]), flush=True)
    text = table(HEAD, rows)
    print(f"\n{text}")
    if arguments.write:
        write_section("Executor", f"{introduction(arguments.repeats)}\n\n{text}\n\n{GOAL}")


def introduction(repeats: int) -> str:
    """Say what was run where."""
    return (
        f"`python -m benchmarks.executor --write`, on {machine('torch')}, {DEVICES} devices, one thread each; {repeats} repeats.\n"
        "What a run takes beyond the longest path of the durations measured in it, by task of a device, and a run with recording\n"
        "over one without. The least is what the executor itself adds; the median has in it what a busy machine adds."
    )


if __name__ == "__main__":
    main()
