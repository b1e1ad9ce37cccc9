"""The one type for what would happen and what did happen: a span for every task of a graph, and memory over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedir.ir.action import Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.pictures import spans_svg


class Source(StrEnum):
    """Where a timeline comes from."""

    SIMULATED = "simulated"
    MEASURED = "measured"


class MemoryClass(StrEnum):
    """What memory is held for; the order is that of `MemorySteps.by_class`."""

    WEIGHTS = "weights"
    VERSIONS = "versions"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    ACTIVATIONS = "activations"
    RECOMPUTED = "recomputed"
    TRANSFER_BUFFERS = "transfer_buffers"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Span:
    """A readable view of one task with its times."""

    kind: str
    """The kind's word: forward, backward, input_grad, …, transfer, reduce."""
    stage: int
    micro_batch: int
    mini_batch: int
    device: int
    lane: str
    """`device 0`, `link 0->1`, `reduce stage 2`."""
    start_s: float
    end_s: float
    version: int
    """Version read; of an update the one it makes; -1 where no weights are read."""
    horizon: int
    label: str
    """The action's text: `2F0`."""


@dataclass(frozen=True, slots=True, eq=False)
class MemorySteps:
    """Memory of one device over time: after step i, at `time[i]` seconds, it holds `by_class[i]` bytes."""

    time: Floats
    """float64 (num_steps), not decreasing; the first is the start of the run."""
    by_class: NDArray[np.int64]
    """int64 (num_steps, 8): bytes held by `MemoryClass`."""

    @property
    def total(self) -> NDArray[np.int64]:
        """int64 (num_steps): bytes held."""
        return np.asarray(self.by_class.sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timeline:
    """All spans of a run. Times are seconds; a simulated run starts at 0, a measured one at its first task.

    a task        start ├───────────────┤ end = release
    a transfer    start ├─ on the link ─┤ release ─ latency ─▶ end       the next one starts from the release on
    """

    graph: TaskGraph
    start: Floats
    """float64 (num_tasks): when each task starts; NaN for a task that was not recorded."""
    end: Floats
    """float64 (num_tasks): when each task ends; of a transfer when it has arrived."""
    source: Source
    release: Floats | None = None
    """float64 (num_tasks): when the task's lane is free again, where that differs from `end` (transfers with latency)."""
    memory: tuple[MemorySteps, ...] | None = None
    """One per device; None if memory is not modelled or measured."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON values. What figures and reports read, each optional: engine, seed, costs (what `CostModel.describe` gives),
    cluster, notes; micro_batch_size and mini_batch_size (over all replicas), data_parallel, tensor_parallel; per device
    limit_bytes and hosts; per stage layers; link_bytes by lane; label (what pictures call it beside others of its program) and
    stage_work (what its stages hold, where costs were given for others). If measured: workers, machine, clock (alignment error
    bound in seconds), warm_up."""

    def records(self) -> Iterator[Span]:
        """Yield a span for every recorded task, in the order of the tasks' numbers."""
        graph = self.graph
        # a span of a million: Python's own numbers, and a text for each lane once
        lanes = [str(lane) for lane in graph.lanes]
        m = graph.program.num_micro_batches
        columns = (
            graph.kind,
            graph.stage,
            graph.micro_batch,
            graph.device,
            graph.lane,
            self.start,
            self.end,
            graph.version,
            graph.horizon,
        )
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for index, (kind, stage, j, device, lane, start, end, version, horizon) in enumerate(rows):
            if not isnan(start):
                name = Kind(kind)
                label = graph.label(index) if name is Kind.OVERLAPPED else f"{stage}{name.letter}{j}"
                yield Span(name.word, stage, j, j // m, device, lanes[lane], start, end, version, horizon, label)

    @property
    def recorded(self) -> Ints:
        """bool (num_tasks): the task has a span."""
        return ~np.isnan(self.start)

    @property
    def makespan_s(self) -> float:
        """Last end minus first start of all recorded tasks."""
        return float(np.nanmax(self.end) - np.nanmin(self.start)) if len(self.start) else 0.0

    def _repr_svg_(self) -> str:
        title = f"{self.graph.program.name}, {self.source}: {self.makespan_s:.6g} s"
        return spans_svg(self.graph, self.start, self.end, title=title)

    def __repr__(self) -> str:
        return f"<Timeline {self.source}: {self.graph.program.name}, {self.makespan_s:.6g} s, {int(self.recorded.sum())} spans>"
