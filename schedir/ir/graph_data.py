"""The task graph: every task of a run, the lane it occupies, what it waits for and which weights it reads.

Tasks are numbered lane by lane, in the order in which their lane runs them, so a lane is a range of task numbers and the
order edge between neighbours of a lane needs no storage. Compute lanes come first (lane d = device d), then one lane per
direction of each link, then one per replicated stage, one per tie over devices, and one for what all stages decide together, for
their reductions. All other edges are stored by their target: the sources of task i are
`edge_source[edge_start[i]:edge_start[i + 1]]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from schedir.ir.arrays import Ints
from schedir.ir.compile_options import CompileOptions
from schedir.ir.lanes import Lane
from schedir.ir.order.topology import Topology
from schedir.ir.pairs import PairReads
from schedir.ir.program import Program


class EdgeKind(IntEnum):
    """Why a task waits for another."""

    DATA = 0
    """It consumes what the other makes."""
    ORDER = 1
    """It comes later by the schedule's order."""
    WEIGHTS = 2
    """It reads weights that the other makes."""
    REDUCE = 3
    """It needs the gradients of all replicas, of all stages that hold the same weights, or (a common update) of all stages."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphData:
    """What a task graph holds: `TaskGraph` shows it as objects, too. Arrays have one row per task unless said otherwise."""

    program: Program
    options: CompileOptions
    kind: Ints
    """int8: a `Kind`."""
    stage: Ints
    """int32; of a transfer the stage that sends."""
    micro_batch: Ints
    """int32."""
    device: Ints
    """int32."""
    direction: Ints
    """int8: a `Direction`."""
    version: Ints
    """int32."""
    horizon: Ints
    """int16."""
    predicted_by: Ints
    """int32: index of the PREDICT task whose weights it reads, -1 for true weights."""
    pairs: PairReads
    lanes: tuple[Lane, ...]
    lane_start: Ints
    """int64 (num_lanes + 1): tasks of lane l are lane_start[l] … lane_start[l + 1]."""
    edge_start: Ints
    """int64 (num_tasks + 1)."""
    edge_source: Ints
    """int32 (num_edges)."""
    edge_kind: Ints
    """int8 (num_edges): an `EdgeKind`."""
    round_size: Ints
    """int32 (num_stages): mini-batches whose gradients one update of the stage averages; more than 1 only for 1F1B-RR."""
    topology: Topology
    edge_lag: Ints | None = None
    """float64 (num_edges) in seconds, negative for an early release; None if there are none."""

    @property
    def num_tasks(self) -> int:
        return len(self.kind)

    @property
    def num_compute_tasks(self) -> int:
        """Tasks on compute lanes: their numbers are 0 … num_compute_tasks."""
        return int(self.lane_start[self.program.num_devices])

    @property
    def mini_batch(self) -> Ints:
        """int32 per task."""
        return self.micro_batch // np.int32(self.program.num_micro_batches)

    @property
    def lane(self) -> Ints:
        """int32 per task."""
        return np.repeat(np.arange(len(self.lanes), dtype=np.int32), np.diff(self.lane_start))

    def lane_range(self, lane: int) -> range:
        """Return the task numbers of a lane, in its order."""
        return range(int(self.lane_start[lane]), int(self.lane_start[lane + 1]))

    def sources(self, task: int) -> Ints:
        """Return the stored sources of a task (its predecessor in the lane is not among them)."""
        return self.edge_source[self.edge_start[task] : self.edge_start[task + 1]]

    def members(self, update: int) -> range:
        """Return the micro-batches whose gradients an update averages, over all replicas."""
        # version v is made by round v - 1; the last round may be incomplete
        per_update = int(self.round_size[self.stage[update]]) * self.program.num_micro_batches
        first = (int(self.version[update]) - 1) * per_update
        return range(first, min(first + per_update, self.program.total_micro_batches))

    def stage_devices(self) -> tuple[tuple[int, ...], ...]:
        """Return for every stage the devices that host it, increasing."""
        compute = slice(0, self.num_compute_tasks)
        hosted = np.zeros((self.program.num_stages, self.program.num_devices), bool)
        # marked, not sorted out of all tasks: that stays linear
        flat = hosted.reshape(-1)
        flat[self.stage[compute] * np.int64(self.program.num_devices) + self.device[compute]] = True
        # a pair's own column has the stage of its forward only
        hosted[self.pairs.stage, self.device[self.pairs.task]] = True
        found: list[list[int]] = [[] for _ in hosted]
        for stage, device in np.argwhere(hosted).tolist():
            found[stage].append(device)
        return tuple(map(tuple, found))

    def edges(self) -> tuple[Ints, Ints, Ints]:
        """Return (source, target, kind) of all edges, the order edges between neighbours of a lane included."""
        targets = np.repeat(np.arange(self.num_tasks, dtype=np.int32), np.diff(self.edge_start))
        # all tasks but the heads of lanes: each follows the one whose number is one less
        followers = np.setdiff1d(np.arange(self.num_tasks, dtype=np.int32), self.lane_start[:-1].astype(np.int32))
        return (
            np.concatenate((self.edge_source, followers - 1)),
            np.concatenate((targets, followers)),
            np.concatenate((self.edge_kind, np.full(len(followers), EdgeKind.ORDER, np.int8))),
        )
