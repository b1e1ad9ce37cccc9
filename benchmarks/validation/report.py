"""From records to docs/validation.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.sections import machine, table
from benchmarks.validation.causes import CAUSES, RoundCauses, causes_of, shares
from benchmarks.validation.changes import Change
from benchmarks.validation.figures import Row, Summary, coverage, ranking
from benchmarks.validation.findings import conclusions, goals_on_gpus, goals_on_threads
from benchmarks.validation.records import IntervalOf
from schedir.ir.action import Kind

VALIDATION = Path(__file__).parents[2] / "docs" / "validation.md"
PICTURE = "validation.svg"
"""Beside the page."""
SHOWN = f"![Predicted and measured step of every configuration]({PICTURE})"

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
    "no communication",
    "formula",
)


@dataclass(frozen=True, slots=True)
class Told:
    """What is said differently of each kind of workers."""

    how: str
    """How it was measured; names machine, count, rounds and steps."""
    legend: str
    """Of the first table."""
    goals: Callable[[Sequence[Row]], str]
    """Says whether the goals of DESIGN 9 are met."""


def body(
    rows: Sequence[Row],
    changed: Sequence[Change],
    *,
    rounds: int,
    mini_batches: int,
    shown: str = "",
    told: Told | None = None,
) -> str:
    """Return the section's Markdown; `shown` is the line of its picture, `told` what it says of workers other than threads."""
    told = ON_THREADS if told is None else told
    taken_apart = [one for row in rows for one in causes_of(row.record)]
    paragraphs = [
        told.how.format(machine=machine("torch", "numpy"), count=len(rows), rounds=rounds, steps=mini_batches),
        shown,
        table(HEAD, (_cells(row) for row in rows)),
        told.legend,
        table(("absolute error", "median", "mean", "p95", "most"), _summaries(rows)),
        _orders(rows),
        table(("90 % interval, from", "inside", "of", "share", "± (median)"), _intervals(rows)),
        INTERVALS,
        table(("error of a round", "share of variance", "median", "absolute: median", "mean", "p95", "most"), _causes(taken_apart)),
        CAUSES_LEGEND.format(gaps=_gaps(taken_apart)),
        table(("kind of work", "share of time", "predicted / measured", "firsts", "beside others"), _kinds(taken_apart)),
        KINDS,
        f"{conclusions(rows, taken_apart)} {told.goals(rows)}",
    ]
    if changed:
        paragraphs += [table(CHANGE_HEAD, (_change(one) for one in changed)), CHANGES]
    return "\n\n".join(filter(None, paragraphs))


HOW = """{machine}. {count} configurations, {rounds} rounds of {steps} steady steps each. `python -m benchmarks.validation --write`
measures them; with `--from-spans` the tables are made again of the stored spans."""

LEGEND = """Steps in milliseconds per mini-batch of the steady state, medians over rounds; bubble predicted and measured; inside:
measured steps within the 90 % interval predicted for them; the last three columns are the errors of the baselines: the busiest
device's work as if it never waited, the prediction with nothing taking time between devices, and the textbook's formula from the
slowest stage. {baseline}"""

ON_THREADS = Told(
    HOW,
    LEGEND.format(
        baseline="Threads hand over in shared memory, which is predicted to take no time: without communication their\n"
        "prediction is the same. Where links take time the table of changes tells the two apart."
    ),
    goals_on_threads,
)

ON_GPUS = Told(
    "{count} configurations, at most {rounds} rounds of {steps} steady steps each; {machine}.",
    LEGEND.format(baseline="Where devices take turns on\none GPU nothing is sent, and the bubble is what launching leaves of it."),
    goals_on_gpus,
)


INTERVALS = """Inside: measured steps within their own 90 % interval, written down before; ±: half of its length. The same profiles
give all of them; how the first is made stands in [profiling](profiling.md#what-comparing-with-training-does)."""

CAUSES_LEGEND = """Every round's predicted / measured is a product of five factors. Each is what the prediction changes by when
durations are put right: all by one factor (the machine ran faster or slower than in the profile), those of each kind and stage by
one, a mini-batch's firsts by one of their own, then each task's; structure is what a replay of the graph on the measured durations
still misses. {gaps}"""

KINDS = """Medians over the rounds. Firsts: predicted / measured of a mini-batch's first micro-batch; beside others: how many times
as long a task takes while the other device computes as while it does not."""

CHANGE_HEAD = (
    "change",
    "configuration",
    "predicted",
    "measured",
    "predicted on measured speeds",
    "no communication",
    "first stage",
    "last stage",
)

CHANGES = """Medians over rounds, ± their standard error. Runs with the change stand between runs without, and every round has
its own profile. First and last stage: how many times as long the same computing takes with the change as without, what was waited
left out; predicted on measured speeds: the prediction for stages that are as much faster or slower as these two columns say; no
communication: the baseline for which links take no time, whatever they are."""


def _intervals(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for interval in IntervalOf:
        found = coverage(rows, interval)
        if found is not None:
            share = f"{found.inside / found.total:.0%}"
            yield interval.value, str(found.inside), str(found.total), share, f"{found.half_width:.1%}"


def _causes(rounds: Sequence[RoundCauses]) -> Iterator[tuple[str, ...]]:
    parts = np.expm1([one.parts for one in rounds])
    columns = [*zip(CAUSES, parts.T, shares(rounds), strict=True), ("all", np.expm1([one.total for one in rounds]), 1.0)]
    for name, errors, share in columns:
        sizes = Summary.of(errors.tolist())
        absolute = (f"{value:.1%}" for value in (sizes.median, sizes.mean, sizes.p95, sizes.most))
        yield name, f"{share:.0%}", f"{np.median(errors):+z.1%}", *absolute


def _gaps(rounds: Sequence[RoundCauses]) -> str:
    predicted, measured = np.median([one.gaps_s for one in rounds], axis=0) * 1e6
    return f"Dispatch gaps: {predicted:.0f} µs before a task predicted, {measured:.0f} µs measured."


def _kinds(rounds: Sequence[RoundCauses]) -> Iterator[tuple[str, ...]]:
    everything = sum(measured for one in rounds for _, measured in one.kinds.values())
    for kind in Kind:
        rest, firsts = ([one.kinds[kind, first] for one in rounds if (kind, first) in one.kinds] for first in (False, True))
        if not (rest or firsts):
            continue
        share = sum(measured for _, measured in [*rest, *firsts]) / everything
        crowded = [one.crowded[kind] for one in rounds if kind in one.crowded]
        yield kind.word, f"{share:.0%}", _ratio(rest), _ratio(firsts), f"x {np.median(crowded):.2f}" if crowded else ""


def _ratio(seconds: Sequence[tuple[float, float]]) -> str:
    known = [predicted / measured - 1 for predicted, measured in seconds if measured > 0]
    return f"{np.median(known):+z.1%}" if known else ""


def _orders(rows: Sequence[Row]) -> str:
    order = ranking(rows)
    return (
        f"Configurations of one model that differ by more than the noise: "
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
        f"{row.error:+z.1%}",
        f"{row.noise:.1%}",
        f"{row.predicted_bubble:.1%}",
        f"{row.measured_bubble:.1%}",
        f"{row.inside}/{row.rounds}",
        f"{row.no_bubble_error:+z.1%}",
        f"{row.no_communication_error:+z.1%}",
        f"{row.formula_error:+z.1%}",
    )


def _summaries(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    kinds = {
        "step": [row.error for row in rows],
        "bubble, points": [row.bubble_error for row in rows],
        "noise floor": [row.noise for row in rows],
        "baseline: no bubble": [row.no_bubble_error for row in rows],
        "baseline: no communication": [row.no_communication_error for row in rows],
        "baseline: formula": [row.formula_error for row in rows],
    }
    found = {name: Summary.of(errors) for name, errors in kinds.items()}
    return [(name, *(f"{value:.1%}" for value in (one.median, one.mean, one.p95, one.most))) for name, one in found.items()]


def _change(one: Change) -> tuple[str, ...]:
    configuration = one.configuration
    where = f"{configuration.model} {configuration.schedule} m={configuration.num_micro_batches}"
    spreads = (one.predicted, one.measured, one.on_measured_speeds, one.without_communication)
    figures = [f"{figure.median:+z.1%} ± {figure.error:.1%}" for figure in spreads]
    return one.what, where, *figures, *(f"x {factor:.2f}" for factor in one.speeds)
