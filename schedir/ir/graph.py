"""Task graphs: their tasks as objects, as text, as nodes of networkx, as a picture. What a graph holds stands in `graph_data`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.graph_data import EdgeKind, GraphData
from schedir.ir.notation.pictures import graph_svg

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, slots=True)
class Task:
    """A readable view of one task."""

    index: int
    kind: Kind
    stage: int
    micro_batch: int
    """Global number; of an update its last member, of a prediction its bellwether."""
    mini_batch: int
    device: int
    """Device that computes it; of a transfer the sender."""
    lane: int
    version: int
    """Version of the stage's weights that it reads (predicts from); of an update the one it makes; -1 where it reads none."""
    horizon: int
    """Updates that the weights it reads are predicted over; 0 for true weights."""
    direction: Direction
    predicted_by: int
    """Index of the task whose prediction it reads, -1 for true weights."""

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.letter}{self.micro_batch}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TaskGraph(GraphData):
    """A verified, immutable task graph. Arrays have one row per task unless said otherwise."""

    def task(self, index: int) -> Task:
        """Return a readable view of one task."""
        return Task(
            index=int(index),
            kind=Kind(self.kind[index]),
            stage=int(self.stage[index]),
            micro_batch=int(self.micro_batch[index]),
            mini_batch=int(self.micro_batch[index]) // self.program.num_micro_batches,
            device=int(self.device[index]),
            lane=int(np.searchsorted(self.lane_start, index, side="right")) - 1,
            version=int(self.version[index]),
            horizon=int(self.horizon[index]),
            direction=Direction(self.direction[index]),
            predicted_by=int(self.predicted_by[index]),
        )

    def tasks(self) -> Iterator[Task]:
        """Yield readable views of all tasks."""
        return (self.task(index) for index in range(self.num_tasks))

    def label(self, index: int) -> str:
        """Return a task's cell text: `2F0`, or `(0F3;3B1)OVERLAP_F_B` for an overlapped pair."""
        task = self.task(index)
        # the text of torch.distributed.pipelining, so that a label can be written into an order
        if task.kind is not Kind.OVERLAPPED:
            return str(task)
        k = int(np.searchsorted(self.pairs.task, index))
        backward = f"{self.pairs.stage[k]}{Kind(self.pairs.kind[k]).letter}{self.pairs.micro_batch[k]}"
        return f"({task.stage}F{task.micro_batch};{backward})OVERLAP_F_B"

    def to_networkx(self) -> networkx.DiGraph[Any]:
        """Return a networkx digraph: node i has kind, stage, micro_batch, device, version; edges have kind."""
        import networkx

        graph: networkx.DiGraph[Any] = networkx.DiGraph(name=self.program.name)
        for task in self.tasks():
            graph.add_node(
                task.index,
                kind=task.kind.word,
                stage=task.stage,
                micro_batch=task.micro_batch,
                device=task.device,
                version=task.version,
                label=str(task),
            )
        for source, target, kind in zip(*(column.tolist() for column in self.edges()), strict=True):
            graph.add_edge(source, target, kind=EdgeKind(kind).name.lower())
        return graph

    def _repr_svg_(self) -> str:
        return graph_svg(self)

    def __repr__(self) -> str:
        return f"<TaskGraph of {self.program!r}: {self.num_tasks} tasks, {len(self.edge_source)} edges between lanes>"
