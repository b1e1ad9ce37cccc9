"""Predict and measure one configuration, round after round; every prediction is on disk before its run begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.validation.configurations import Configuration
from benchmarks.validation.records import Expected, Pair, Record
from schedir.files import replaced_whole
from schedir.ir.graph import TaskGraph
from schedir.workflows.compare_training import compare_training
from schedir.workflows.training_results import Round, TrainingSetting


def measure(configuration: Configuration, folder: Path, *, rounds: int, mini_batches: int, workers: str = "threads") -> Record:
    """Return what was predicted and measured in `rounds` rounds of `mini_batches` steps in steady state."""
    setting = TrainingSetting(recompute=configuration.recompute, rounds=rounds, workers=workers)
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
        low_s=predicted.step_interval.low,
        high_s=predicted.step_interval.high,
        low_bubble=predicted.bubble_interval.low,
        high_bubble=predicted.bubble_interval.high,
        no_bubble_s=max(work) / program.num_mini_batches,
        formula_s=slots * (program.num_stages // program.num_devices) * slowest,
    )


def _write(path: Path, notes: Sequence[dict[str, Any]]) -> None:
    with replaced_whole(path) as partial:
        partial.write_text(json.dumps(list(notes), indent=1) + "\n", encoding="utf-8")
