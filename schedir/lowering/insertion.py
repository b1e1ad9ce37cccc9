"""Insert recomputations, predictions and updates between a program's entries: the tasks of all compute lanes, in order.

Before an entry stand, in this order, the forward's prediction, the backward's prediction and the recomputation; behind it the
updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
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
    inserted = _Insertions(table)
    # at one place what is asked for later stands closer to its entry: a prediction that R reads has to be asked for before R
    if predictions is not None and len(predictions.stage):
        _insert_predictions(inserted, table, predictions)
    if table.recompute_row is None and recomputed.any():
        keys = np.flatnonzero(recomputed)
        inserted.before(Kind.RECOMPUTE, keys, rows=table.gradient_row[keys], direction=Direction.BACKWARD)
    if not updates.placed:
        inserted.behind(updates)
    return inserted.merge(updates)


def _insert_predictions(inserted: _Insertions, table: ActionTable, predictions: Predictions) -> None:
    """Put each prediction before its first reader."""
    keys = predictions.stage * table.program.total_micro_batches + predictions.micro_batch
    forwards = predictions.direction == Direction.FORWARD
    inserted.before(Kind.PREDICT, keys[forwards], rows=table.forward_row[keys[forwards]], direction=Direction.FORWARD)
    # R reads the backward's weights, so the backward's prediction stands before an R that the program places itself
    inserted.before(Kind.PREDICT, keys[~forwards], rows=table.backward_row[keys[~forwards]], direction=Direction.BACKWARD)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Tasks of one kind that are inserted together."""

    kind: Kind
    direction: Direction
    stage: Ints
    micro_batch: Ints
    row: Ints
    """Entry beside which each stands."""
    place: Ints
    """Insertions of the same side that stand before it there."""
    behind: bool

    def tasks(self, entry_task: Ints, num_before: Ints) -> Ints:
        """Return the task of each; `num_before` counts what stands before every entry."""
        first = 1 if self.behind else -num_before[self.row]
        found: Ints = entry_task[self.row] + (self.place + first)
        return found


class _Insertions:
    """Collects insertions, then merges them with the entries in one pass of prefix sums."""

    def __init__(self, table: ActionTable) -> None:
        self._table = table
        num_rows = table.program.num_entries
        self._before = np.zeros(num_rows, np.int64)
        self._behind = np.zeros(num_rows, np.int64)
        self._groups: list[_Group] = []

    def before(self, kind: Kind, keys: Ints, *, rows: Ints, direction: Direction) -> None:
        """Insert one task before each of `rows`, which are distinct."""
        stage, micro_batch = np.divmod(keys, self._table.program.total_micro_batches)
        self._groups.append(_Group(kind, direction, stage, micro_batch, rows, self._before[rows], behind=False))
        self._before[rows] += 1

    def behind(self, updates: Updates) -> None:
        """Insert the updates behind their rows; several may share a row, then lower versions of lower stages come first."""
        #   row, sorted   4  4  4  7  9  9        starts = 0, 3, 4
        #   place         0  1  2  0  0  1        its number less that of its row's first
        order = np.lexsort((updates.stage, updates.version, updates.row))
        rows = updates.row[order]
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows)) - rows.searchsorted(rows)
        self._groups.append(
            _Group(Kind.UPDATE, Direction.BACKWARD, updates.stage, updates.micro_batch, updates.row, place, behind=True)
        )
        np.add.at(self._behind, updates.row, 1)  # `+= 1` would count a row once, however many updates stand behind it

    def merge(self, updates: Updates) -> ComputeTasks:
        """Return the tasks of all lanes; `updates` are those that were inserted, or that the program places itself."""
        program = self._table.program
        entry_task, lane_start = self._places()
        placed = [(group, group.tasks(entry_task, self._before)) for group in self._groups]
        kind, direction = (np.empty(int(lane_start[-1]), np.int8) for _ in range(2))
        stage, micro_batch = (np.empty(int(lane_start[-1]), np.int32) for _ in range(2))
        kind[entry_task], stage[entry_task], micro_batch[entry_task] = program.kind, program.stage, program.micro_batch
        forwards = (program.kind == Kind.FORWARD) | (program.kind == Kind.OVERLAPPED)
        direction[entry_task] = np.where(forwards, np.int8(Direction.FORWARD), np.int8(Direction.BACKWARD))
        for group, tasks in placed:
            kind[tasks], direction[tasks] = group.kind, group.direction
            stage[tasks], micro_batch[tasks] = group.stage, group.micro_batch
        return ComputeTasks(
            kind=kind,
            stage=stage,
            micro_batch=micro_batch,
            direction=direction,
            device=np.arange(program.num_devices, dtype=np.int32).repeat(lane_start[1:] - lane_start[:-1]),
            lane_start=lane_start,
            entry_task=entry_task,
            recompute_task=self._recompute_task(entry_task, placed),
            update_task=entry_task[updates.row] if updates.placed else _tasks_of(Kind.UPDATE, placed),
            prediction_task=_tasks_of(Kind.PREDICT, placed),
        )

    def _places(self) -> tuple[Ints, Ints]:
        """Return the task of every entry and the first task of every lane, with the number of tasks at its end."""
        program = self._table.program
        #   entry          0     1        2
        #   before         0     2        1
        #   behind         1     0        1
        #   tasks          0 U   P R 1    R 2 U
        #   shift          1     3        5       inserted up to this entry, before and behind it
        #   entry_task     0     4        6       = entry + shift - behind
        shift = np.cumsum(self._before + self._behind)
        entry_task = np.arange(program.num_entries) + shift - self._behind
        return entry_task, program.device_start + np.concatenate(([0], shift))[program.device_start]

    def _recompute_task(self, entry_task: Ints, placed: list[tuple[_Group, Ints]]) -> Ints:
        """Return the task of R by key, -1 where there is none; R is inserted, or stands in the program."""
        found = np.full(self._table.num_keys, -1, np.int64)
        row = self._table.recompute_row
        if row is not None:
            found[row >= 0] = entry_task[row[row >= 0]]
        for group, tasks in placed:
            if group.kind is Kind.RECOMPUTE:
                found[group.stage * self._table.program.total_micro_batches + group.micro_batch] = tasks
        return found


def _tasks_of(kind: Kind, placed: list[tuple[_Group, Ints]]) -> Ints:
    """Return the tasks of all insertions of one kind, in the order in which they were asked for."""
    return np.concatenate([np.zeros(0, np.int64), *(tasks for group, tasks in placed if group.kind is kind)])
