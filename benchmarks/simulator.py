"""Speed of the simulator: both engines up to 64 devices x 512 micro-batches, many small configurations, Monte-Carlo.

    python -m benchmarks.simulator [--repeats 5] [--write]

CPU seconds after imports, the least of the repeats. `textbook` is what a reader of SimPy's manual would write for the same
timeline, without a graph, versions, transfers or memory: one process per device and a Store for each direction of a link.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import simpy

from benchmarks.sections import machine, table, write_section
from schedir.compiler import compile_program
from schedir.costs.model import UnitBytes
from schedir.costs.uniform import UniformCosts
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import evaluate
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from simulator import monte_carlo, simulate
from simulator.engine import SimpyEngine
from simulator.memory import ledger

SHAPES = ((8, 64), (16, 128), (32, 256), (64, 512))
COSTS = UniformCosts(forward=1.0, backward=2.0, transfer=0.1)
UNITS = ("weights", "gradients", "optimizer", "activations", "boundary", "recomputed", "output", "input_gradient", "workspace")

Result = TypeVar("Result")


def least(repeats: int, work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the least CPU seconds of some runs, and what the last of them made."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        result = work()
        seconds.append(time.process_time() - begin)
    return min(seconds), result


def graph_of(num_devices: int, num_micro_batches: int) -> TaskGraph:
    """Compile 1F1B."""
    return compile_program(build_program("1f1b", num_devices=num_devices, num_micro_batches=num_micro_batches))


def textbook(program: Program) -> float:
    """Return the makespan of a chain of stages, as SimPy's manual would have it."""
    env = simpy.Environment()
    last = program.num_devices - 1
    stores = {kind: [simpy.Store(env) for _ in range(last + 1)] for kind in (Kind.FORWARD, Kind.BACKWARD)}
    seconds = {Kind.FORWARD: 1.0, Kind.BACKWARD: 2.0}
    ends = {Kind.FORWARD: (0, last), Kind.BACKWARD: (last, 0)}
    rows = list(zip(program.kind.tolist(), program.micro_batch.tolist(), strict=True))

    def send(store: simpy.Store, micro_batch: int) -> None:
        def arrive(_: simpy.Event) -> None:
            store.put(micro_batch)

        env.timeout(0.1).callbacks.append(arrive)

    def device(stage: int) -> Generator[simpy.Event, None, None]:
        for kind, micro_batch in rows[int(program.device_start[stage]) : int(program.device_start[stage + 1])]:
            first, final = ends[kind]
            if stage != first:
                yield stores[kind][stage].get()
            yield env.timeout(seconds[kind])
            if stage != final:
                send(stores[kind][stage + (1 if kind == Kind.FORWARD else -1)], micro_batch)

    for stage in range(program.num_devices):
        env.process(device(stage))
    env.run()
    return float(env.now)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Least CPU seconds of one shape."""

    shape: str
    tasks: int
    """Compute tasks."""
    compiling: float
    passing: float
    """The longest-path pass."""
    simulating: float
    counting: float
    """The memory ledger."""
    reading: float
    """The textbook program."""

    def row(self) -> tuple[object, ...]:
        """Return the row of the table."""
        seconds = (self.compiling, self.passing, self.simulating, self.counting)
        ours, theirs = self.tasks / (self.simulating + self.counting), self.tasks / self.reading
        return (
            self.shape,
            self.tasks,
            *(f"{value:.4f} s" for value in seconds),
            f"{ours:,.0f}",
            f"{theirs:,.0f}",
            f"{ours / theirs:.2f}",
        )


def speeds_of(num_devices: int, num_micro_batches: int, repeats: int) -> Speeds:
    """Measure one shape, and hold the three programs against each other."""
    compiling, graph = least(repeats, lambda: graph_of(num_devices, num_micro_batches))
    times = COSTS.times(graph)
    units = UnitBytes(**{unit: np.full(num_devices, 1e6) for unit in UNITS})
    passing, expected = least(repeats, lambda: evaluate(graph, times))
    simulating, spans = least(repeats, lambda: SimpyEngine(graph, times).run())
    counting, _ = least(repeats, lambda: ledger(graph, spans, units))
    reading, makespan = least(repeats, lambda: textbook(graph.program))
    assert spans.end.tobytes() == expected.end.tobytes()
    assert abs(makespan - spans.end.max()) < 1e-6 * makespan
    shape = f"{num_devices} x {num_micro_batches}"
    return Speeds(shape, graph.program.num_entries, compiling, passing, simulating, counting, reading)


def engines(repeats: int) -> str:
    """Return the table of both engines."""
    seconds = ("compile", "in-order", "SimPy", "ledger")
    head = ("1f1b", "compute tasks", *seconds, "SimPy with ledger, tasks/s", "textbook, tasks/s", "ratio")
    return table(head, [speeds_of(devices, micro_batches, repeats).row() for devices, micro_batches in SHAPES])


def small_runs(repeats: int) -> str:
    """Return the table of what sweeps and Monte-Carlo do."""

    def sweep(run: Callable[[TaskGraph, UniformCosts], object]) -> None:
        for number in range(1000):
            run(graph_of(8, 32), UniformCosts(forward=1.0 + number / 1000, backward=2.0))

    graph = graph_of(8, 64)
    passing, _ = least(2, lambda: sweep(lambda graph, costs: evaluate(graph, costs.times(graph))))
    simulating, _ = least(2, lambda: sweep(simulate))
    sampling, _ = least(repeats, lambda: monte_carlo(graph, COSTS, samples=200, jitter=0.03))
    rows = [
        ("1,000 configurations of 1f1b 8 x 32, each compiled anew and evaluated in order", f"{passing:.3f} s", "1.5 s"),
        ("the same through `simulate`, to its timeline", f"{simulating:.3f} s", "-"),
        ("200 Monte-Carlo samples of 1f1b 8 x 64", f"{sampling:.4f} s", "0.05 s"),
    ]
    return table(("what", "CPU time", "goal"), rows)


_BODY = """
    {command}

{machine}, with other work on them; CPU seconds after imports, the least of
{repeats} runs. Transfers have latency; both engines give the same bits.
`textbook` is the same timeline as SimPy's manual would have it: a process per device, a Store per link; no graph, versions or
memory.

{engines}

The goal is 120,000 compute tasks a second on SimPy with ledger at 64 x 512.

{small_runs}
"""


def main() -> None:
    """Print the tables; with --write put them into docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="the least is taken")
    parser.add_argument("--write", action="store_true", help="replace the section in docs/performance.md")
    asked = parser.parse_args()
    body = _BODY.format(
        command="python -m benchmarks.simulator --write",
        machine=machine("numpy", "simpy"),
        repeats=asked.repeats,
        engines=engines(asked.repeats),
        small_runs=small_runs(asked.repeats),
    )
    print(body)
    if asked.write:
        write_section("Simulator", body)


if __name__ == "__main__":
    main()
