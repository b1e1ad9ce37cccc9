"""Where optimizer steps stand: directly behind a stage's last gradient of a mini-batch, on every device that hosts it.

Under 1F1B-RR (a continuous schedule whose mini-batches go to the replicas of a stage in turn) a round of r mini-batches makes
one update, on all r replicas; an incomplete last round averages what it has.

Stages that hold the same weights (a tie) update behind their device's whole mini-batch, all of them: their updates wait for each
other's gradients, and a device that waits with work left may be what another stage of the tie waits for. So do all stages where
they decide together (a common update: a norm over the model, the common skip of a loss scaler).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.checks.verify import fault
from schedir.lowering.across import ALONE, Together
from schedir.lowering.placed_updates import updates_of_program


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """All optimizer steps, sorted by (stage, row)."""

    stage: Ints
    row: Ints
    """Row of the program that the update stands behind; of an update that the program places itself, its own row."""
    device: Ints
    micro_batch: Ints
    """Last member."""
    version: Ints
    """The version that it makes: 1, 2, …"""
    placed: bool
    """The program places its updates itself."""
    round_size: Ints
    """Mini-batches per update, by stage."""
    replicated: tuple[int, ...]
    """Stages that stand on more than one device."""
    row_span: int
    """Number of rows, the factor of the search key."""

    @property
    def one_each(self) -> bool:
        """Every stage has one update, on one device: row n is that of stage n."""
        return len(self.stage) == len(self.round_size) and not self.replicated

    def before(self, stage: Ints, row: Ints, device_first_row: Ints) -> Ints:
        """Count the updates of a stage that stand before a row on the row's device. Arrays of one shape.

        `device_first_row` is the first row of the row's device.
        """
        if not len(self.stage):
            return np.zeros(len(row), np.int64)
        # updates are sorted by these keys, so two searches count: those of the stage before the row, less those before its device
        keys = self.stage * self.row_span + self.row
        upto = np.searchsorted(keys, stage * self.row_span + row, side="left")
        return upto - np.searchsorted(keys, stage * self.row_span + device_first_row, side="left")


def place_updates(table: ActionTable, together: Together = ALONE) -> Updates:
    """Return the program's own updates if it has any, else one behind every last gradient of a mini-batch (or round)."""
    hosts = table.hosts()
    round_size = _round_sizes(table, hosts)
    placed = bool((table.program.kind == Kind.UPDATE).any())
    if placed:
        columns = updates_of_program(table, round_size, together)
    elif all(len(devices) == 1 for devices in hosts):
        columns = _place_single_hosted(table, together)
    else:
        waiting, ends = together.stages(len(hosts)), _ends_of_mini_batches(table)
        stages = [
            _place_stage(table, stage, devices, round_size=int(round_size[stage]), ends=ends, late=stage in waiting)
            for stage, devices in enumerate(hosts)
        ]
        columns = tuple(np.concatenate(parts) for parts in zip(*stages, strict=True))
    stage, row, version, micro_batch = columns
    # `before` searches by stage and row: that is the order it needs
    order = np.lexsort((version, row, stage))
    stage, row, version, micro_batch = stage[order], row[order], version[order], micro_batch[order]
    device = table.device[row]
    # rows of a stage on one device, in its order: versions have to rise
    late = np.flatnonzero((stage[1:] == stage[:-1]) & (device[1:] == device[:-1]) & (version[1:] < version[:-1]))
    if len(late):
        at = int(late[0])
        raise fault(
            table.program,
            f"update {version[at]} of stage {stage[at]} would come before update {version[at + 1]}: finish the backwards of "
            "earlier mini-batches first",
            int(row[at]),
        )
    return Updates(
        stage=stage,
        row=row,
        device=device,
        micro_batch=micro_batch,
        version=version,
        placed=placed,
        round_size=round_size,
        replicated=tuple(stage for stage, devices in enumerate(hosts) if len(devices) > 1),
        row_span=table.program.num_entries,
    )


def _round_sizes(table: ActionTable, hosts: list[list[int]]) -> Ints:
    program = table.program
    sizes = np.ones(program.num_stages, np.int32)
    if program.weights.synchronous:
        return sizes
    for stage, devices in enumerate(hosts):
        if len(devices) > 1:
            rows = table.forward_row.reshape(program.num_stages, program.num_mini_batches, program.num_micro_batches)[stage]
            homes = table.device[rows]
            # every mini-batch is on one device as a whole, so the replicas take mini-batches in turn: r of them make a round (C11)
            if (homes == homes[:, :1]).all():
                sizes[stage] = len(devices)
    return sizes


def _place_single_hosted(table: ActionTable, together: Together) -> tuple[Ints, ...]:
    """All stages at once where none is replicated; those that wait for others stand behind their device's whole mini-batch."""
    program = table.program
    # (stage, mini-batch, micro-batch): all on one device, so the largest row of a mini-batch is its last gradient
    last = table.last_row.reshape(program.num_stages, program.num_mini_batches, program.num_micro_batches).max(axis=2)
    waiting = np.array(sorted(together.stages(program.num_stages)), np.int64)
    if len(waiting):
        homes = table.device[table.by_stage(table.last_row)[waiting, 0]]
        last[waiting] = _ends_of_mini_batches(table)[homes]
    stage, mini_batch = np.divmod(np.arange(program.num_stages * program.num_mini_batches), program.num_mini_batches)
    return stage, last.reshape(-1), mini_batch + 1, (mini_batch + 1) * program.num_micro_batches - 1


def _place_stage(
    table: ActionTable, stage: int, devices: list[int], *, round_size: int, ends: Ints, late: bool
) -> tuple[Ints, ...]:
    """One stage; a replica without a share of a round takes part right behind its update before, or at its end.

    `ends` is from `_ends_of_mini_batches`; `late` is a stage whose updates wait for other stages.

    Under a flush, replicas update behind their device's whole mini-batch: an update waits for all replicas, and a device that
    waits with work left may be what another replica waits for (two directions: device 0 ends stage 1 before it begins stage 0).
    """
    program = table.program
    per_update = round_size * program.num_micro_batches
    last = table.by_stage(table.last_row)[stage]
    homes = table.device[last]
    num_updates = -(-program.num_mini_batches // round_size)
    # row of the last gradient by (device, update); -1 where a replica has no share
    rows = np.full((len(devices), num_updates), -1, np.int64)
    update = np.arange(len(last)) // per_update
    for index, device in enumerate(devices):
        here = homes == device
        # of the gradients that this replica has a share of, the last one on its device
        np.maximum.at(rows[index], update[here], last[here])
        if late or (program.weights.synchronous and len(devices) > 1):
            rows[index] = ends[device]  # also where it has no share: others may wait for what it still has to do
        for n in np.flatnonzero(rows[index] < 0).tolist():
            rows[index, n] = _row_without_share(
                table, stage, device, update=n, before=rows[index, n - 1], is_last=n == num_updates - 1
            )
    version = np.tile(np.arange(1, num_updates + 1), len(devices))
    micro_batch = np.minimum(version * per_update, program.total_micro_batches) - 1
    return np.full(len(version), stage), rows.reshape(-1), version, micro_batch


def _ends_of_mini_batches(table: ActionTable) -> Ints:
    """Return the rows of the last gradients, int64 (num_devices, num_mini_batches), -1 where a device has none."""
    program = table.program
    ends = np.full((program.num_devices, program.num_mini_batches), -1, np.int64)
    mini_batch = np.arange(table.num_keys) % program.total_micro_batches // program.num_micro_batches
    # rows grow with a device's order: the largest is the last
    np.maximum.at(ends, (table.device[table.last_row], mini_batch), table.last_row)
    return ends


def _row_without_share(table: ActionTable, stage: int, device: int, *, update: int, before: int, is_last: bool) -> int:
    if is_last:
        return int(table.program.device_start[device + 1]) - 1
    if update == 0:
        raise fault(
            table.program,
            f"device {device} holds a replica of stage {stage} but none of the micro-batches of its first update: "
            "give every replica a share of it",
        )
    return int(before)
