"""Put together what the passes of lowering found: one column over all tasks for each property, and the proof that all can run."""

from __future__ import annotations

from typing import Any

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.checks.deadlock import explain_deadlock
from schedir.ir.compile_options import CompileOptions
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import compute_lane
from schedir.ir.order.order_search import BlockedError, find_order
from schedir.ir.order.precedence import Precedence
from schedir.ir.pairs import PairReads
from schedir.ir.program import Program
from schedir.lowering.insertion import ComputeTasks
from schedir.lowering.updates import Updates
from schedir.lowering.versions import Reads
from schedir.lowering.wires import Wires


def assemble(
    table: ActionTable, options: CompileOptions, *, tasks: ComputeTasks, updates: Updates, reads: Reads, wires: Wires
) -> TaskGraph:
    """Return the graph of what all passes found; raise DeadlockError where its tasks wait for each other for ever."""
    program = table.program
    num_compute = len(tasks.kind)
    columns = _ReadColumns(table.program, tasks, updates=updates, reads=reads)
    lane_start = np.concatenate((tasks.lane_start, num_compute + np.cumsum(wires.lane_sizes))).astype(np.int64)
    compute_lanes = tuple(map(compute_lane, range(program.num_devices)))
    precedence = Precedence(
        lane_start,
        wires.edge_start,
        wires.edge_source,
        program.num_devices,
        # they are the last tasks, so their number says where they begin
        num_reductions=int((wires.kind == Kind.REDUCE).sum()),
        period=_periods(program, tasks, wires) if options.common_update else None,
    )
    try:
        topology = find_order(precedence)
    except BlockedError as blocked:
        raise explain_deadlock(
            program, blocked.waiting, precedence=precedence, entry_task=tasks.entry_task, label=tasks.label
        ) from None
    return TaskGraph(
        program=program,
        options=options,
        kind=_joined(tasks.kind, wires.kind, np.int8),
        stage=_joined(tasks.stage, wires.stage, np.int32),
        micro_batch=_joined(tasks.micro_batch, wires.micro_batch, np.int32),
        device=_joined(tasks.device, wires.device, np.int32),
        direction=_joined(tasks.direction, wires.direction, np.int8),
        version=_joined(columns.version, wires.version, np.int32),
        horizon=_joined(columns.horizon, np.zeros(len(wires.kind), np.int16), np.int16),
        predicted_by=_joined(columns.predicted_by, np.full(len(wires.kind), -1, np.int32), np.int32),
        pairs=columns.pairs(),
        lanes=compute_lanes + wires.lanes,
        lane_start=frozen_array(lane_start, np.int64),
        edge_start=frozen_array(wires.edge_start, np.int64),
        edge_source=frozen_array(wires.edge_source, np.int32),
        edge_kind=frozen_array(wires.edge_kind, np.int8),
        round_size=frozen_array(updates.round_size, np.int32),
        topology=topology,
    )


def _periods(program: Program, tasks: ComputeTasks, wires: Wires) -> Ints:
    """Return between which common updates every task stands: the mini-batch, of updates the next one."""
    period = np.concatenate((tasks.micro_batch, wires.micro_batch)) // program.num_micro_batches
    period[tasks.update_task] += 1
    return period


def _joined(of_compute: Ints, of_wires: Ints, dtype: type[np.signedinteger[Any]]) -> Ints:
    """Return one read-only column over compute tasks and what lies between devices."""
    column = np.concatenate((of_compute, of_wires), dtype=dtype, casting="unsafe")
    column.flags.writeable = False
    return column


class _ReadColumns:
    """Versions, horizons and predictions of the compute tasks."""

    def __init__(self, program: Program, tasks: ComputeTasks, *, updates: Updates, reads: Reads) -> None:
        self._program, self._tasks, self._reads = program, tasks, reads
        num_compute = len(tasks.kind)
        self._maker = {direction: self._makers(direction) for direction in (0, 1)}
        key = tasks.stage.astype(np.int64) * program.total_micro_batches + tasks.micro_batch
        self.version, self.horizon, self.predicted_by = self._of(key, tasks.direction, is_prediction=tasks.kind == Kind.PREDICT)
        self.version[tasks.update_task], self.horizon[tasks.update_task] = updates.version, 0
        self.predicted_by[tasks.update_task] = -1
        assert len(self.version) == num_compute

    def _makers(self, direction: int) -> Ints | None:
        """Task of the prediction that a key reads, by key; None where nothing is predicted."""
        predictions = self._reads.predictions
        if predictions is None or not len(predictions.stage):
            return None
        m = self._program.num_micro_batches
        chosen = predictions.direction == direction
        if self._reads.backward_on_stash:
            # one prediction for both directions: F's, whose key its backward looks up, too
            chosen = np.ones(len(chosen), bool)
        maker = np.full((self._program.num_stages, self._program.num_mini_batches), -1, np.int64)
        maker[predictions.stage[chosen], predictions.micro_batch[chosen] // m] = self._tasks.prediction_task[chosen]
        return np.repeat(maker, m, axis=1).reshape(-1)

    def _of(self, key: Ints, direction: Ints, *, is_prediction: Ints) -> tuple[Ints, Ints, Ints]:
        reads = self._reads
        backwards = direction == 1
        # one and the same array where the rule lets all read alike
        if reads.backward_version is reads.forward_version:
            version = reads.forward_version[key]
        else:
            version = np.where(backwards, reads.backward_version[key], reads.forward_version[key])
        predicted_by = np.full(len(key), -1, np.int32)
        if reads.predictions is None:
            return version, np.zeros(len(key), np.int16), predicted_by
        horizon = np.where(backwards, reads.backward_horizon[key], reads.forward_horizon[key])
        for side, maker in self._maker.items():
            if maker is not None:
                # P itself reads true weights
                chosen = (direction == side) & ~is_prediction
                predicted_by[chosen] = maker[key[chosen]]
        return version, horizon, predicted_by

    def pairs(self) -> PairReads:
        pairs = self._program.pairs
        key = pairs.stage.astype(np.int64) * self._program.total_micro_batches + pairs.micro_batch
        version, horizon, predicted_by = self._of(key, np.ones(len(key), np.int8), is_prediction=np.zeros(len(key), bool))
        return PairReads(
            task=frozen_array(self._tasks.entry_task[pairs.row], np.int32),
            kind=pairs.kind,
            stage=pairs.stage,
            micro_batch=pairs.micro_batch,
            version=frozen_array(version, np.int32),
            horizon=frozen_array(horizon, np.int16),
            predicted_by=frozen_array(predicted_by, np.int32),
        )
