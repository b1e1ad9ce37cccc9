"""What is kept of a measured configuration, so that every table can be made again: all spans, and the predictions as they were."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.validation.configurations import Configuration
from schedir.compiler import compile_program
from schedir.files import replaced_whole
from schedir.ir.graph import TaskGraph
from schedir.ir.text import parse_program
from schedir.timeline.timeline import Source, Timeline

Floats = NDArray[np.float64]

MICROSECOND = 1e-6


@dataclass(frozen=True, slots=True)
class Expected:
    """What was predicted before a run, beside its timeline."""

    low_s: float
    """Lower end of the step's 90 % interval, over draws from the profile's samples."""
    high_s: float
    low_bubble: float
    high_bubble: float
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
            Expected(**expected),
            *(Timeline(graph, start, end, source) for (start, end), source in zip(both, _SOURCES, strict=True)),
        )
        for expected, both in zip(head["expected"], spans, strict=True)
    ]
    return Record(Configuration(**head["configuration"]), tuple(pairs))


_SOURCES = (Source.SIMULATED, Source.MEASURED)


def _whole(timeline: Timeline) -> Floats:
    return np.rint(np.array([timeline.start, timeline.end]) / MICROSECOND)
