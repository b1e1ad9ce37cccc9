"""Predict and measure all configurations.

    python -m benchmarks.validation [--only TEXT] [--rounds 4] [--mini-batches 8] [--out FOLDER] [--write]
    python -m benchmarks.validation --from-spans [--write]

Spans and predictions go to the folder, one file per configuration; `--write` replaces the section of docs/validation.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.validation import report
from benchmarks.validation.changes import CHANGED, Change, changes, load_changes, save_changes
from benchmarks.validation.configurations import configurations
from benchmarks.validation.figures import row_of
from benchmarks.validation.measure import measure
from benchmarks.validation.records import load, save

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
    text = {"rounds": rows[0].rounds, "mini_batches": options.mini_batches}
    print(report.body(rows, changed, **text))
    if options.write:
        report.write(rows, changed, **text)


def _measure(options: argparse.Namespace, say: Callable[[str], None]) -> list[Change]:
    chosen = [one for one in configurations() if options.only in one.name]
    for number, configuration in enumerate(chosen, start=1):
        say(f"{number}/{len(chosen)} {configuration.name}")
        save(measure(configuration, options.out, rounds=options.rounds, mini_batches=options.mini_batches), options.out)
    changed: list[Change] = []
    for configuration in CHANGED:
        if options.only in configuration.name:
            say(f"changes of {configuration.name}")
            changed += changes(configuration, rounds=options.rounds, mini_batches=options.mini_batches)
    return changed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validation", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="configurations whose name holds this")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--mini-batches", type=int, default=8)
    parser.add_argument("--out", type=Path, default=SPANS)
    parser.add_argument("--from-spans", action="store_true", help="measure nothing: make the tables of what is stored")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
