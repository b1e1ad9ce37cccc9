"""Predict and measure all configurations.

    python -m benchmarks.validation [--only TEXT] [--rounds 8] [--mini-batches 4] [--out FOLDER] [--write]
    python -m benchmarks.validation --from-spans [--write]

Spans and predictions go to the folder, one file per configuration; `--write` replaces the section of docs/validation.md and
its picture.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.sections import write_section
from benchmarks.validation import report
from benchmarks.validation.changes import CHANGED, Change, changes, load_changes, save_changes
from benchmarks.validation.configurations import configurations
from benchmarks.validation.figures import row_of
from benchmarks.validation.measure import measure
from benchmarks.validation.pictures import draw
from benchmarks.validation.records import load, save
from schedir.timeline.metrics.steady import steady_range

SPANS = Path(__file__).parent / "spans"
CHANGES = "changes.json"


def main() -> None:
    """Measure, or read what was measured, and print the tables."""
    options = _options()
    console = Console(stderr=True)
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.from_spans:
        save_changes(_measure(options, console.print), options.out / CHANGES)
    changed = load_changes(options.out / CHANGES)
    rows = [row_of(record) for record in load(options.out)]
    first, last = steady_range(rows[0].record.graph) or (0, 0)
    text = report.body(rows, changed, rounds=rows[0].rounds, mini_batches=last - first, shown=report.SHOWN)
    print(text)
    if options.write:
        write_section("Threads on the CPU", text, report.VALIDATION)
        draw(rows, report.VALIDATION.with_name(report.PICTURE))


def _measure(options: argparse.Namespace, say: Callable[[str], None]) -> list[Change]:
    chosen = [one for one in configurations() if options.only in one.name]
    for number, configuration in enumerate(chosen, start=1):
        say(f"{number}/{len(chosen)} {configuration.name}")
        save(measure(configuration, options.out, rounds=options.rounds, mini_batches=options.mini_batches), options.out)
    changed: list[Change] = []
    for configuration in CHANGED:
        if options.only in configuration.name:
            say(f"changes of {configuration.name}")
            changed += changes(configuration)
    return changed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validation", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="configurations whose name holds this")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--mini-batches", type=int, default=4, help="steps in steady state of every round")
    parser.add_argument("--out", type=Path, default=SPANS)
    parser.add_argument("--from-spans", action="store_true", help="measure nothing: make the tables of what is stored")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
