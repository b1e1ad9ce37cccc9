"""Updates that a program places itself: lowering adds none then, and proves that they stand where they can be made."""

from __future__ import annotations

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.checks.verify import fault
from schedir.lowering.across import Together


def updates_of_program(table: ActionTable, round_size: Ints, together: Together) -> tuple[Ints, ...]:
    """Return (stage, row, version, last member) of the updates as they stand; raise ProgramError for one that cannot be made there.

    Each has to stand behind the gradients that it averages, and where stages wait for each other behind theirs, too.
    """
    program = table.program
    row = np.flatnonzero(program.kind == Kind.UPDATE)
    stage, micro_batch = program.stage[row].astype(np.int64), program.micro_batch[row].astype(np.int64)
    per_update = round_size[stage].astype(np.int64) * program.num_micro_batches
    ends_update = (micro_batch + 1) % per_update == 0
    # the last round may be incomplete
    ends_update |= micro_batch == program.total_micro_batches - 1
    version = micro_batch // per_update + 1
    device = table.device[row]
    for at, place in enumerate(row.tolist()):
        name = f"{stage[at]}U{micro_batch[at]}"
        if not ends_update[at]:
            raise fault(program, f"{name} does not end a mini-batch: an update is numbered by its last micro-batch", place)
        first = int((version[at] - 1) * per_update[at])
        members = table.by_stage(table.last_row)[stage[at]][first : int(micro_batch[at]) + 1]
        late = members[(table.device[members] == device[at]) & (members > place)]
        if len(late):
            missing = f"{stage[at]}{Kind(program.kind[late[0]]).letter}{program.micro_batch[late[0]]}"
            raise fault(program, f"{name} stands before {missing}, whose gradient it needs: move it behind", place)
    _check_counts(table, row, version=version, round_size=round_size)
    _check_together(table, together, stage=stage, row=row, version=version)
    return stage, row, version, micro_batch


def _check_together(table: ActionTable, together: Together, *, stage: Ints, row: Ints, version: Ints) -> None:
    """On a device, updates that wait for each other must stand behind the gradients of all their stages that it hosts."""
    # only programs that flush have any, so an update averages one mini-batch
    m = table.program.num_micro_batches
    for stages, reason in together.groups(table.program.num_stages):
        for at in np.flatnonzero(np.isin(stage, stages)).tolist():
            first = (int(version[at]) - 1) * m
            members = table.by_stage(table.last_row)[np.array(stages), first : first + m].reshape(-1)
            late = members[(table.device[members] == table.device[row[at]]) & (members > row[at])]
            if len(late):
                missing = table.program.entry(int(late[0]))
                raise fault(
                    table.program,
                    f"{table.program.entry(int(row[at]))} stands before {missing}, whose gradient it needs: {reason}: move it "
                    "behind",
                    int(row[at]),
                )


def _check_counts(table: ActionTable, row: Ints, *, version: Ints, round_size: Ints) -> None:
    """Every device that hosts a stage must place versions 1, 2, … of it, in this order, and no other device any."""
    program = table.program
    stage, device = program.stage[row], table.device[row]
    for number, devices in enumerate(table.hosts()):
        strange = np.flatnonzero((stage == number) & ~np.isin(device, devices))
        if len(strange):
            at = int(row[strange[0]])
            raise fault(program, f"{number}U{program.micro_batch[at]} stands on a device without stage {number}: move it", at)
        # all or none: a stage that somebody forgot would train on its first weights for ever
        needed = -(-program.num_mini_batches // int(round_size[number]))
        for host in devices:
            made = version[(stage == number) & (device == host)].tolist()
            if made != list(range(1, needed + 1)):
                raise fault(
                    program,
                    f"device {host} places the updates {made} of stage {number}, but 1 to {needed} are needed, in this order: "
                    "place all updates of all stages, or none",
                )
