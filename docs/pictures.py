"""Make the pictures of README.md and docs/schedules/: `python docs/pictures.py`.

They are committed, so that the pages show them; a picture is made again only when what it shows changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plots import gantt, save
from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.schedules.registry import build_program
from simulator import simulate

PICTURES = Path(__file__).parent / "schedules" / "pictures"

SHAPES: dict[str, dict[str, Any]] = {
    "gpipe": {"num_devices": 4, "num_micro_batches": 8},
    "1f1b": {"num_devices": 4, "num_micro_batches": 8},
    "pipedream": {"num_devices": 4, "num_micro_batches": 1, "num_mini_batches": 16},
    "xpipe": {"num_devices": 4, "num_micro_batches": 2, "num_mini_batches": 9},
}
"""What each schedule's page shows."""


def main() -> None:
    """Draw every schedule's page with F = 1, B = 2, in the order of the table of schedules."""
    for name, shape in SHAPES.items():
        timeline = simulate(compile_program(build_program(name, **shape)), UniformCosts(transfer=0.0))
        save(gantt(timeline, style="screen", width=10), PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
