"""From records to docs/validation.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.sections import machine, table, write_section
from benchmarks.validation.changes import Change
from benchmarks.validation.figures import Row, Summary, ranking

VALIDATION = Path(__file__).parents[2] / "docs" / "validation.md"

HEAD = (
    "configuration",
    "m",
    "recompute",
    "predicted",
    "measured",
    "error",
    "noise",
    "bubble",
    "measured",
    "inside",
    "no bubble",
    "formula",
)


def write(rows: Sequence[Row], changed: Sequence[Change], *, rounds: int, mini_batches: int) -> None:
    """Write the section of the CPU's threads into docs/validation.md."""
    write_section("Threads on the CPU", body(rows, changed, rounds=rounds, mini_batches=mini_batches), VALIDATION)


def body(rows: Sequence[Row], changed: Sequence[Change], *, rounds: int, mini_batches: int) -> str:
    """Return the section's Markdown."""
    paragraphs = [
        HOW.format(machine=machine("torch", "numpy"), count=len(rows), rounds=rounds, steps=mini_batches),
        table(HEAD, (_cells(row) for row in rows)),
        LEGEND,
        table(("absolute error", "median", "mean", "p95", "most"), _summaries(rows)),
        _orders(rows),
        table(("change", "configuration", "predicted", "measured"), (_change(one) for one in changed)),
    ]
    return "\n\n".join(paragraphs)


HOW = """{machine}. {count} configurations, {rounds} rounds of {steps} steady steps each. `python -m benchmarks.validation --write`
measures them; with `--from-spans` the tables are made again of the stored spans."""

LEGEND = """Steps in milliseconds per mini-batch of the steady state, medians over rounds; bubble predicted and measured; inside:
measured steps within their own 90 % Monte-Carlo interval; the last two columns are the errors of the baselines: the busiest
device's work as if it never waited, and the textbook's formula from the slowest stage. Threads hand over in shared memory, so a
prediction without communication is the prediction itself."""


def _orders(rows: Sequence[Row]) -> str:
    order = ranking(rows)
    inside, total = sum(row.inside for row in rows), sum(row.rounds for row in rows)
    return (
        f"Inside the 90 % interval: {inside} of {total} steps. Configurations of one model that differ by more than the noise: "
        f"Kendall tau {order.tau:.2f} over {order.num_pairs} pairs; regret of the predicted choice {order.regret:.1%}."
    )


def _cells(row: Row) -> tuple[str, ...]:
    configuration = row.record.configuration
    return (
        f"{configuration.model} {configuration.schedule}",
        str(configuration.num_micro_batches),
        configuration.recompute,
        f"{row.predicted_s * 1e3:.1f}",
        f"{row.measured_s * 1e3:.1f}",
        f"{row.error:+.1%}",
        f"{row.noise:.1%}",
        f"{row.predicted_bubble:.1%}",
        f"{row.measured_bubble:.1%}",
        f"{row.inside}/{row.rounds}",
        f"{row.no_bubble_error:+.1%}",
        f"{row.formula_error:+.1%}",
    )


def _summaries(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    kinds = {
        "step": [row.error for row in rows],
        "bubble, points": [row.bubble_error for row in rows],
        "noise floor": [row.noise for row in rows],
        "baseline: no bubble": [row.no_bubble_error for row in rows],
        "baseline: formula": [row.formula_error for row in rows],
    }
    found = {name: Summary.of(errors) for name, errors in kinds.items()}
    return [(name, *(f"{value:.1%}" for value in (one.median, one.mean, one.p95, one.most))) for name, one in found.items()]


def _change(one: Change) -> tuple[str, ...]:
    configuration = one.configuration
    where = f"{configuration.model} {configuration.schedule} m={configuration.num_micro_batches}"
    return one.what, where, f"{one.predicted:+.1%}", f"{one.measured:+.1%}"
