"""Speed of generating and compiling: the largest shape from its name to its metrics, and every schedule by action.

    python -m benchmarks.compiler [--repeats 5] [--write]

CPU seconds after imports, the least of the repeats. Memory is the peak of what is allocated (`tracemalloc`, which numpy tells of
its arrays), in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tracemalloc

from benchmarks.sections import machine, table, write_section
from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.schedules.registry import SCHEDULES, build_program
from schedir.timeline.metrics.metrics import metrics
from simulator import simulate

LARGE = (64, 512, 8)
"""Devices, micro-batches, stages per device."""
SMALL_DEVICES, LARGE_DEVICES, MICRO_BATCHES = 8, 64, 512
COSTS = UniformCosts(forward=1.0, backward=2.0, transfer=0.1)


def stages_of_large() -> tuple[float, float, float]:
    """Return CPU seconds to the program, to the verified graph and to the metrics of the largest shape, from its name on."""
    devices, micro_batches, stages = LARGE
    begin = time.process_time()
    program = build_program("interleaved-1f1b", num_devices=devices, num_micro_batches=micro_batches, stages_per_device=stages)
    built = time.process_time()
    graph = compile_program(program)
    compiled = time.process_time()
    metrics(simulate(graph, COSTS, engine="in-order"))
    return built - begin, compiled - begin, time.process_time() - begin


def peak_of_large() -> int:
    """Return the bytes that the largest shape has allocated at its peak."""
    tracemalloc.start()
    stages_of_large()
    return tracemalloc.get_traced_memory()[1]


def large(repeats: int) -> str:
    """Return the table of the largest shape."""
    runs = [stages_of_large() for _ in range(repeats)]
    peak = int(subprocess.run([sys.executable, "-m", __spec__.name, "--peak"], capture_output=True, text=True, check=True).stdout)
    rows = [
        ("name to program", f"{min(run[0] for run in runs):.3f} s", "-"),
        ("name to verified graph", f"{min(run[1] for run in runs):.3f} s", "0.4 s"),
        ("name to metrics", f"{min(run[2] for run in runs):.3f} s", "0.6 s"),
        ("memory", f"{peak / 1e6:.0f} MB", "200 MB"),
    ]
    return table(("interleaved-1f1b, 64 devices x 8 stages x 512 micro-batches", "CPU time", "goal"), rows)


def seconds_an_action(name: str, devices: int, repeats: int) -> float:
    """Return the least CPU seconds of building a schedule, by its actions."""
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        program = build_program(name, num_devices=devices, num_micro_batches=MICRO_BATCHES)
        found.append((time.process_time() - begin) / program.num_entries)
    return min(found)


def schedules(repeats: int) -> str:
    """Return the table of all synchronous schedules."""
    names = [name for name, schedule in SCHEDULES.items() if not schedule.continuous]
    rows = [
        (name, *(f"{1e6 * seconds_an_action(name, devices, repeats):.2f}" for devices in (SMALL_DEVICES, LARGE_DEVICES)))
        for name in names
    ]
    return table(("µs an action, 512 micro-batches", f"{SMALL_DEVICES} devices", f"{LARGE_DEVICES} devices"), rows)


_BODY = """
    python -m benchmarks.compiler --write

{machine}, with other work on them; CPU seconds after imports, the least of {repeats} runs.

{large}

1,048,064 tasks, transfers and updates included, in order. Memory is the peak of what is allocated, in a process of its own.

{schedules}

hanayo, chimera and v-half are simulated by a list scheduler, the others are array operations.
"""


def main() -> None:
    """Print the tables; with --write put them into docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="the least is taken")
    parser.add_argument("--write", action="store_true", help="replace the section in docs/performance.md")
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peak:
        print(peak_of_large())
        return
    body = _BODY.format(
        machine=machine("numpy"),
        repeats=asked.repeats,
        large=large(asked.repeats),
        schedules=schedules(asked.repeats),
    )
    print(body)
    if asked.write:
        write_section("Compiler", body)


if __name__ == "__main__":
    main()
