"""Make the pictures of README.md and docs/schedules/: `python docs/pictures.py [out/xpipe.trace.json]`.

With the trace of a training that `make demo` or `schedir compare --model` left, README's own is made, else those of the pages.
They are committed, so that the pages show them; a picture is made again only when what it shows changes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from plots import gantt, save
from schedir.compiler import compile_program, load_timelines
from schedir.costs.uniform import UniformCosts
from schedir.schedules.registry import build_program
from schedir.search.problem.problem import Limits, Problem
from schedir.search.search import search_order
from schedir.timeline.window import steady_part
from simulator import simulate

PICTURES = Path(__file__).parent / "schedules" / "pictures"

FLUSHED = {"num_devices": 4, "num_micro_batches": 8}

SHAPES: dict[str, dict[str, Any]] = {
    "gpipe": FLUSHED,
    "1f1b": FLUSHED,
    "interleaved-1f1b": FLUSHED,
    "looped-bfs": FLUSHED,
    "zb-h1": FLUSHED,
    "zb-h2": FLUSHED,
    "interleaved-zb": FLUSHED,
    "zb-v": FLUSHED,
    "v-half": FLUSHED,
    "dualpipev": FLUSHED,
    "dualpipe": FLUSHED,
    "chimera": {"num_devices": 4, "num_micro_batches": 4},
    "hanayo": FLUSHED,
    "pipedream": {"num_devices": 4, "num_micro_batches": 1, "num_mini_batches": 16},
    "pipedream-2bw": {"num_devices": 4, "num_micro_batches": 4, "num_mini_batches": 5},
    "xpipe": {"num_devices": 4, "num_micro_batches": 2, "num_mini_batches": 9},
    "spectrain": {"num_devices": 4, "num_micro_batches": 1, "num_mini_batches": 16},
    "pipeoptim": {"num_devices": 4, "num_micro_batches": 1, "num_mini_batches": 16},
}
"""What each schedule's page shows."""


def draw_schedules() -> None:
    """Draw every schedule's page with F = 1, B = 2 = I + W, a pair as long as its two actions."""
    for name, shape in SHAPES.items():
        timeline = simulate(compile_program(build_program(name, **shape)), UniformCosts(transfer=0.0))
        save(gantt(timeline, style="screen", width=10), PICTURES / f"{name}.svg")


def draw_search() -> None:
    """Draw the order of docs/search.md: stages that take unequal times, found from seed 0."""
    times = {"forward": (1, 2, 1, 1.5), "input_grad": (1, 2, 1, 1), "weight_grad": (1, 1, 0.5, 1), "transfer": 0.3}
    problem = Problem(num_devices=4, num_micro_batches=8, costs=UniformCosts(**times), limits=Limits((4,)))
    found = search_order(problem, iterations=20_000)
    save(gantt(found.best.timeline, style="screen", width=10), PICTURES / "search.svg")


def draw_training(trace: Path) -> None:
    """Draw three mini-batches of the steady state, predicted above measured."""
    predicted, measured = load_timelines(trace)
    shown = steady_part(measured, 3)
    save(gantt(predicted, measured, title="", mini_batches=shown, style="screen", width=10), PICTURES / "xpipe-measured.svg")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw_training(Path(sys.argv[1]))
    else:
        draw_schedules()
        draw_search()
