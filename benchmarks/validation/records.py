"""What is kept of a measured configuration, so that every table can be made again: all spans, and the predictions as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.validation.configurations import Configuration
from schedir.compiler import compile_program
from schedir.files import replaced_whole
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.text import parse_program
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Source, Timeline
from schedir.workflows.comparing.predicting import Interval

MICROSECOND = 1e-6


class IntervalOf(StrEnum):
    """What a 90 % interval of the step knows of."""

    DRIFT = "repeats of the profile, and drift"
    """The prediction's own."""
    REPEATS = "repeats of the profile"
    TASKS = "every task for itself"
    """As if no task had anything in common with another."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What was predicted before a run, beside its timeline."""

    intervals: Mapping[IntervalOf, Interval]
    """Of the step's seconds."""
    no_bubble_s: float
    """Baseline: the work of the busiest device, as if it never waited."""
    formula_s: float
    """Baseline: (m + p - 1) times the slowest stage, the textbook's closed formula; without a flush m times."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One prediction and the run that followed it."""

    expected: Expected
    predicted: Timeline
    measured: Timeline

    def inside(self, interval: IntervalOf) -> bool:
        """Tell whether the measured step lies in one of its intervals."""
        return self.expected.intervals[interval].holds(step_seconds(self.measured))


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One configuration with all its rounds."""

    configuration: Configuration
    pairs: tuple[Pair, ...]

    @property
    def graph(self) -> TaskGraph:
        return self.pairs[0].predicted.graph


def save(record: Record, folder: Path) -> None:
    """Write the spans in whole microseconds, compressed, and the rest as JSON inside."""
    graph = record.graph
    head = {
        "configuration": asdict(record.configuration),
        "program": str(graph.program),
        "recompute": graph.options.recompute_text,
        "expected": [asdict(pair.expected) for pair in record.pairs],
    }
    spans = [[_whole(one) for one in (pair.predicted, pair.measured)] for pair in record.pairs]
    with replaced_whole(folder / f"{record.configuration.name}.npz") as path:
        np.savez_compressed(path, head=np.array(json.dumps(head)), spans=np.array(spans, np.int64))


def load(folder: Path) -> list[Record]:
    """Return all records of a folder, in the order of their names."""
    return [_record(path) for path in sorted(folder.glob("*.npz"))]


def _record(path: Path) -> Record:
    with np.load(path, allow_pickle=False) as stored:
        head: dict[str, Any] = json.loads(str(stored["head"]))
        spans = stored["spans"] * MICROSECOND
    graph = compile_program(parse_program(head["program"]), recompute=head["recompute"])
    pairs = [
        Pair(
            _expected(expected),
            *(Timeline(graph, start, end, source) for (start, end), source in zip(both, _SOURCES, strict=True)),
        )
        for expected, both in zip(head["expected"], spans, strict=True)
    ]
    return Record(Configuration(**head["configuration"]), tuple(pairs))


def _expected(stored: dict[str, Any]) -> Expected:
    intervals = {IntervalOf(name): Interval(**ends) for name, ends in stored["intervals"].items()}
    return Expected(**{**stored, "intervals": intervals})


_SOURCES = (Source.SIMULATED, Source.MEASURED)


def _whole(timeline: Timeline) -> Floats:
    return np.rint(np.array([timeline.start, timeline.end]) / MICROSECOND)
