"""Predict and measure one configuration, round after round; every prediction is on disk before its run begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.validation.configurations import Configuration
from benchmarks.validation.records import Expected, IntervalOf, Pair, Record
from schedir.costs.table.pieces import TIMES, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.files import replaced_whole
from schedir.ir.graph import TaskGraph
from schedir.workflows.comparing.compare_training import compare_training
from schedir.workflows.comparing.predicting import predict_training
from schedir.workflows.comparing.training_results import Round, TrainingSetting

REPEATS = 4
"""Mini-batches that the profile of a round measures."""
DRAWS = 31
"""Of the interval that is only there to be compared with."""


def measure(
    configuration: Configuration,
    folder: Path,
    *,
    rounds: int,
    mini_batches: int,
    workers: str = "threads",
    time_limit_s: float | None = None,
) -> Record:
    """Return what was predicted and measured in `rounds` rounds of `mini_batches` steps in steady state.

    `time_limit_s`: fewer rounds, but at least one, where more would take longer.
    """
    setting = TrainingSetting(
        recompute=configuration.recompute, rounds=rounds, repeats=REPEATS, workers=workers, time_limit_s=time_limit_s
    )
    written = folder / f"{configuration.name}.predictions.json"
    (found,) = compare_training(
        [configuration.program(mini_batches)],
        configuration.recipe(),
        setting,
        write_down=lambda notes: _write(written, notes),
    )
    pairs = [Pair(_expected(found.graph, one), one.predicted.timeline, one.measured) for one in found.rounds]
    return Record(configuration, tuple(pairs))


def _expected(graph: TaskGraph, found: Round) -> Expected:
    """Return the intervals that were written down, and the baselines that follow from the same profile."""
    program, compute = graph.program, slice(0, graph.num_compute_tasks)
    duration = found.costs.times(graph).duration
    work = [float(duration[graph.lane_range(device)].sum()) for device in range(program.num_devices)]
    slowest = float(np.bincount(graph.stage[compute], weights=duration[compute]).max()) / program.total_micro_batches
    slots = program.num_micro_batches + (program.num_devices - 1 if program.weights.synchronous else 0)
    predicted = found.predicted
    return Expected(
        intervals={
            IntervalOf.DRIFT: predicted.step_interval,
            IntervalOf.REPEATS: predicted.step_draws,
            IntervalOf.TASKS: predict_training(graph, without_repeats(found.costs), draws=DRAWS, seed=found.number).step_draws,
        },
        no_bubble_s=max(work) / program.num_mini_batches,
        formula_s=slots * (program.num_stages // program.num_devices) * slowest,
    )


def without_repeats(costs: TableCosts) -> TableCosts:
    """Return costs whose samples do not know which were measured together."""
    return replace(costs, rows=tuple(_without_repeats(row) for row in costs.rows))


def _without_repeats(row: PieceCosts) -> PieceCosts:
    times = {name: getattr(row, name) for name in TIMES}
    alone: dict[str, Any] = {name: replace(time, repeats=()) for name, time in times.items() if isinstance(time, WorkTime)}
    return replace(row, **alone)


def _write(path: Path, notes: Sequence[dict[str, Any]]) -> None:
    with replaced_whole(path) as partial:
        partial.write_text(json.dumps(list(notes), indent=1) + "\n", encoding="utf-8")
