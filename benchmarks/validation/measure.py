"""Predict and measure one configuration, round after round; every prediction is on disk before its run begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.validation.configurations import DEVICES, Configuration
from benchmarks.validation.records import Expected, Pair, Record
from schedir.costs.table import TableCosts
from schedir.files import replaced_whole
from schedir.ir.graph import TaskGraph
from schedir.workflows.compare_training import compare_training
from schedir.workflows.training_results import TrainingSetting
from simulator import monte_carlo

SAMPLES = 200
"""Draws that an interval is made of."""


def measure(configuration: Configuration, folder: Path, *, rounds: int, mini_batches: int) -> Record:
    """Return what was predicted and measured in `rounds` rounds of `mini_batches` steps in steady state."""
    setting = TrainingSetting(recompute=configuration.recompute, rounds=rounds)
    written = folder / f"{configuration.name}.predictions.json"
    (found,) = compare_training(
        [configuration.program(mini_batches)],
        configuration.recipe(),
        setting,
        write_down=lambda notes: _write(written, notes),
    )
    pairs = [Pair(expected(found.graph, one.costs, seed=one.number), one.predicted.timeline, one.measured) for one in found.rounds]
    return Record(configuration, tuple(pairs))


def expected(graph: TaskGraph, costs: TableCosts, *, seed: int) -> Expected:
    """Return the intervals and baselines that follow from a profile."""
    draws = monte_carlo(graph, costs, samples=SAMPLES, seed=seed)
    low_s, high_s = np.percentile(draws.seconds_per_mini_batch, (5, 95)).tolist()
    low_bubble, high_bubble = np.percentile(draws.bubble_fraction, (5, 95)).tolist()
    duration = costs.times(graph).duration
    work = [float(duration[graph.lane_range(device)].sum()) for device in range(DEVICES)]
    stages = np.bincount(graph.stage[: graph.num_compute_tasks], weights=duration[: graph.num_compute_tasks])
    total = graph.program.total_micro_batches
    slots = graph.program.num_micro_batches + (DEVICES - 1 if graph.program.weights.synchronous else 0)
    per_device = graph.program.num_stages // DEVICES
    return Expected(
        low_s=low_s,
        high_s=high_s,
        low_bubble=low_bubble,
        high_bubble=high_bubble,
        no_bubble_s=max(work) / graph.program.num_mini_batches,
        formula_s=slots * per_device * float(stages.max()) / total,
    )


def _write(path: Path, notes: Sequence[dict[str, Any]]) -> None:
    with replaced_whole(path) as partial:
        partial.write_text(json.dumps(list(notes), indent=1) + "\n", encoding="utf-8")
