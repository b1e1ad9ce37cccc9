"""Insert recomputations, predictions and updates between a program's entries: the tasks of all compute lanes, in order.

Before an entry stand, in this order, the forward's prediction, the backward's prediction and the recomputation; behind it the
updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.action_table import ActionTable
from schedir.ir.arrays import Ints
from schedir.lowering.updates import Updates
from schedir.lowering.versions import Predictions


@dataclass(frozen=True, slots=True, eq=False)
class ComputeTasks:
    """All tasks of the compute lanes; arrays have one row per task, device after device."""

    kind: Ints
    stage: Ints
    micro_batch: Ints
    direction: Ints
    device: Ints
    lane_start: Ints
    entry_task: Ints
    """Task of every entry of the program."""
    recompute_task: Ints
    """Task of R by key, -1 where there is none."""
    update_task: Ints
    """Task of every update, in the order of `Updates`."""
    prediction_task: Ints
    """Task of every prediction, in the order of `Predictions`."""

    def label(self, task: int) -> str:
        """Return the text of a task: `2F0`."""
        return f"{self.stage[task]}{Kind(self.kind[task]).letter}{self.micro_batch[task]}"


def place_tasks(table: ActionTable, updates: Updates, *, recomputed: Ints, predictions: Predictions | None) -> ComputeTasks:
    """Merge a program's entries with what lowering adds."""
    program = table.program
    inserted = _Insertions(table)
    if predictions is not None and len(predictions.stage):
        keys = predictions.stage * program.total_micro_batches + predictions.micro_batch
        forwards = predictions.direction == Direction.FORWARD
        # R reads the backward's weights, so the backward's prediction stands before an R that the program places itself; one that
        # is inserted here comes behind the prediction, since it is asked for later
        recompute_row = table.recompute_row if table.recompute_row is not None else np.full(table.num_keys, -1)
        first_reader = np.where(recompute_row[keys] >= 0, recompute_row[keys], table.gradient_row[keys])
        inserted.before(Kind.PREDICT, keys[forwards], rows=table.forward_row[keys[forwards]], direction=Direction.FORWARD)
        inserted.before(Kind.PREDICT, keys[~forwards], rows=first_reader[~forwards], direction=Direction.BACKWARD)
    own_recompute = table.recompute_row is None and bool(recomputed.any())
    if own_recompute:
        keys = np.flatnonzero(recomputed)
        inserted.before(Kind.RECOMPUTE, keys, rows=table.gradient_row[keys], direction=Direction.BACKWARD)
    if not updates.placed:
        inserted.behind(updates)
    tasks = inserted.merge()
    recompute_task = np.full(table.num_keys, -1, np.int64)
    if own_recompute:
        recompute_task[keys] = inserted.tasks_of(Kind.RECOMPUTE)
    elif table.recompute_row is not None:
        present = table.recompute_row >= 0
        recompute_task[present] = tasks.entry_task[table.recompute_row[present]]
    update_task = tasks.entry_task[updates.row] if updates.placed else inserted.tasks_of(Kind.UPDATE)
    return ComputeTasks(
        kind=tasks.kind,
        stage=tasks.stage,
        micro_batch=tasks.micro_batch,
        direction=tasks.direction,
        device=tasks.device,
        lane_start=tasks.lane_start,
        entry_task=tasks.entry_task,
        recompute_task=recompute_task,
        update_task=update_task,
        prediction_task=inserted.tasks_of(Kind.PREDICT),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Merged:
    kind: Ints
    stage: Ints
    micro_batch: Ints
    direction: Ints
    device: Ints
    lane_start: Ints
    entry_task: Ints


class _Insertions:
    """Collects insertions, then merges them with the entries in one pass of prefix sums."""

    def __init__(self, table: ActionTable) -> None:
        self._table = table
        num_rows = table.program.num_entries
        self._before = np.zeros(num_rows, np.int64)
        self._behind = np.zeros(num_rows, np.int64)
        self._groups: list[
            tuple[Kind, Direction, Ints, Ints, Ints, Ints, bool]
        ] = []  # kind, direction, stage, micro-batch, row, place, behind
        self._tasks: list[tuple[Kind, Ints]] = []

    def before(self, kind: Kind, keys: Ints, *, rows: Ints, direction: Direction) -> None:
        """Insert one task before each of `rows`, which are distinct."""
        stage, micro_batch = np.divmod(keys, self._table.program.total_micro_batches)
        self._groups.append((kind, direction, stage, micro_batch, rows, self._before[rows], False))
        self._before[rows] += 1

    def behind(self, updates: Updates) -> None:
        """Insert the updates behind their rows; several may share a row, then lower versions of lower stages come first."""
        #   row, sorted   4  4  4  7  9  9        starts = 0, 3, 4
        #   place         0  1  2  0  0  1        its number less that of its row's first
        order = np.lexsort((updates.stage, updates.version, updates.row))
        rows = updates.row[order]
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows)) - rows.searchsorted(rows)
        self._groups.append((Kind.UPDATE, Direction.BACKWARD, updates.stage, updates.micro_batch, updates.row, place, True))
        np.add.at(self._behind, updates.row, 1)

    def merge(self) -> _Merged:
        program = self._table.program
        #   entry          0     1        2
        #   before         0     2        1
        #   behind         1     0        1
        #   tasks          0 U   P R 1    R 2 U
        #   shift          1     3        5       inserted up to this entry, before and behind it
        #   entry_task     0     4        6       = entry + shift - behind
        shift = np.cumsum(self._before + self._behind)
        entry_task = np.arange(program.num_entries) + shift - self._behind
        added = np.concatenate(([0], shift))[program.device_start]
        num_tasks = program.num_entries + int(shift[-1])
        kind, direction = np.empty(num_tasks, np.int8), np.empty(num_tasks, np.int8)
        stage, micro_batch = np.empty(num_tasks, np.int32), np.empty(num_tasks, np.int32)
        kind[entry_task], stage[entry_task], micro_batch[entry_task] = program.kind, program.stage, program.micro_batch
        forwards = (program.kind == Kind.FORWARD) | (program.kind == Kind.OVERLAPPED)
        direction[entry_task] = np.where(forwards, np.int8(Direction.FORWARD), np.int8(Direction.BACKWARD))
        for group, towards, stages, micro_batches, rows, place, behind in self._groups:
            tasks = entry_task[rows] + (1 + place if behind else place - self._before[rows])
            kind[tasks], direction[tasks], stage[tasks], micro_batch[tasks] = group, towards, stages, micro_batches
            self._tasks.append((group, tasks))
        lane_start = program.device_start + added
        device = np.arange(program.num_devices, dtype=np.int32).repeat(lane_start[1:] - lane_start[:-1])
        return _Merged(kind, stage, micro_batch, direction, device, lane_start, entry_task)

    def tasks_of(self, kind: Kind) -> Ints:
        """Return the tasks of all insertions of one kind, in the order in which they were asked for."""
        found = [tasks for group, tasks in self._tasks if group is kind]
        return np.concatenate(found) if found else np.zeros(0, np.int64)
