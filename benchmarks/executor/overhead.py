"""What the executor's threads add to training: time between tasks, and the cost of recording them.

Overhead is the measured run less the longest path of the very durations that were measured in it, transfers taken as free, over
the tasks of a device: queues, wake-ups, the interpreter's own steps. On a busy machine cores taken away between two tasks count
too; the least of the repeats has the fewest of those. Runs with and without recording alternate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from time import perf_counter

from benchmarks.executor.models import large, small
from benchmarks.executor.paths import forward_seconds, gaps, overhead
from benchmarks.sections import machine, table
from executor.model.pipeline import Pipeline
from executor.profiling.parts import copy_stages
from executor.recipe.recipe import Recipe
from executor.run.clock import Recorder
from executor.training import Session
from executor.workers.team import OneProcess
from schedir.compiler import compile_program
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Timeline

DEVICES = 2

GOAL = """The goal is at most 50 µs a task where forwards take 5 ms or more. `own work` is the median gap before a task whose device
had all that it takes: some 10 µs of Python that has left the caches while a task computed, and the call that wakes a device which
waits. `hand-over` is that before a task which waited for a value, from the end of the task that made it: the thread wakes up, on a
virtual machine slowly, and gets Python's lock from the one that handed over (executor/workers/waking.py)."""


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


CASES = (
    Case("gpipe", large, 8),
    Case("1f1b", large, 8),
    Case("1f1b", large, 8, recompute="always"),
    Case("pipedream", large, 8),
    Case("xpipe", large, 8),
    Case("1f1b", small, 8),
)


@dataclass(slots=True)
class Result:
    """What was measured of one case."""

    timelines: list[Timeline] = field(default_factory=list)
    """One per recorded repeat."""
    recorded_s: list[float] = field(default_factory=list)
    """Seconds of every recorded run."""
    silent_s: list[float] = field(default_factory=list)


def measure(case: Case, num_mini_batches: int, repeats: int) -> Result:
    """Train the case again and again, recorded and silent in turn; the first of each warms up."""
    graph, recipe, found = case.graph(num_mini_batches), case.make(), Result()
    pipeline = Pipeline(copy_stages(recipe.cut(DEVICES)), loss=recipe.loss, optimizer=recipe.optimizer)
    data = list(islice(recipe.data(0), num_mini_batches))
    for number in range(repeats + 1):
        recorded_s, timeline = _timed(graph, pipeline, data, recorder=Recorder(graph.num_tasks))
        silent_s, _ = _timed(graph, pipeline, data, recorder=Silent(graph.num_tasks))
        if number:
            found.timelines.append(timeline)
            found.recorded_s.append(recorded_s)
            found.silent_s.append(silent_s)
    return found


def _timed(graph: TaskGraph, pipeline: Pipeline, data: Sequence[object], *, recorder: Recorder) -> tuple[float, Timeline]:
    """Return the seconds of one run over the graph, and its timeline."""
    session = Session(graph, pipeline, seed=0, team=OneProcess(timeout_s=600.0), recorder=recorder)
    try:
        begin = perf_counter()
        run = session.train(data)
        return perf_counter() - begin, run.timelines[0]
    finally:
        session.close()


HEAD = (
    *("schedule", "micro-batches", "recompute", "forward"),
    *("over the longest path, least", "a task, least", "a task, median", "own work", "hand-over", "recorded / silent"),
)


def row(case: Case, found: Result) -> tuple[str, ...]:
    """Return one line of the table."""
    fractions, per_task = zip(*map(overhead, found.timelines), strict=True)
    forward = median(forward_seconds(timeline.graph, timeline.end - timeline.start) for timeline in found.timelines)
    all_gaps = [gaps(timeline) for timeline in found.timelines]
    return (
        case.schedule,
        str(case.num_micro_batches),
        case.recompute,
        f"{1e3 * forward:.1f} ms",
        f"{100 * min(fractions):+z.2f} %",
        microseconds([min(per_task)]),
        microseconds(per_task),
        microseconds([gap for each in all_gaps for gap in each.own]),
        microseconds([gap for each in all_gaps for gap in each.handed]),
        f"{median(found.recorded_s) / median(found.silent_s):.3f}",
    )


def microseconds(seconds: Sequence[float]) -> str:
    """Return the median in microseconds, as text."""
    return f"{1e6 * median(seconds):.0f} µs" if seconds else "-"


def body(rows: list[tuple[str, ...]], repeats: int) -> str:
    """Return the section of docs/performance.md."""
    introduction = (
        f"`python -m benchmarks.executor --write`, on {machine('torch')}, {DEVICES} devices, one thread each; {repeats} repeats.\n"
        "What a run takes beyond the longest path of the durations measured in it, by task of a device, and a run with recording\n"
        "over one without. The least is what the executor itself adds; the median has in it what a busy machine adds."
    )
    return f"{introduction}\n\n{table(HEAD, rows)}\n\n{GOAL}"
