"""Where the difference between two timelines lies: how long every kind of task takes on every stage, and what every device does."""

from __future__ import annotations

from schedir.cli.screen.screen import left_out, print_table, short, shown_rows, unit_for
from schedir.timeline.comparison.compare import Comparison
from schedir.timeline.percent import percent

FREE = "–"
"""Stands for the ratio of what was predicted to take no time."""


def print_ratios(comparison: Comparison, labels: tuple[str, str]) -> None:
    """Print the second side's durations over the first's, by kind and stage."""
    stages = sorted({row.stage for row in comparison.ratios})
    shown = [stages[place] for place in shown_rows(len(stages))]
    found = {(row.kind, row.stage): FREE if row.ratio is None else f"{row.ratio:.2f}" for row in comparison.ratios}
    kinds = list(dict.fromkeys(row.kind for row in comparison.ratios))
    print(f"\ndurations, {labels[1]} / {labels[0]}")
    print_table(
        ["stage", *(kind.replace("_", " ") for kind in kinds)],
        [[str(stage), *(found.get((kind, stage), "") for kind in kinds)] for stage in shown],
    )
    for note in left_out(shown, len(stages), "stage"):
        print(note)


def print_sides(comparison: Comparison, labels: tuple[str, str]) -> None:
    """Print for how long every device is busy and idle on both sides, and which part of the whole it is idle."""
    sides = (comparison.predicted, comparison.measured)
    factor, unit = unit_for(max(side.makespan_s for side in sides))
    rows = []
    for device, row in enumerate(sides[0].devices):
        both = [(side, side.devices[device]) for side in sides]
        busy = [short(each.busy_s / factor) for _, each in both]
        idle = [short(each.idle_s / factor) for _, each in both]
        shares = [percent(each.idle_s / side.makespan_s if side.makespan_s else 0.0) for side, each in both]
        rows.append([str(row.device), *map(" / ".join, (busy, idle, shares))])
    print(f"\ndevices, {labels[0]} / {labels[1]}")
    shown = shown_rows(len(rows))
    print_table([f"in {unit}: device", "busy", "idle", "idle of the whole"], [rows[device] for device in shown])
    for note in left_out(shown, len(rows), "device"):
        print(note)
