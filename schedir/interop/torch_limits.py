"""What torch.distributed.pipelining can run: the reasons for which a program cannot be exported to it.

Its runtime has one version of the weights and one mini-batch a step, finds a stage on one device only, and takes the losses of the
last stage in the order of its forwards (torch 2.13: `_PipelineScheduleRuntime`, `_validate_schedule`, `_maybe_get_loss`).
"""

from __future__ import annotations

import numpy as np

from schedir.errors import RefusedError
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.checks.verify import check_program, name_action
from schedir.ir.program import Program

_REMEDY = "write .toml or .txt instead"


def check_torch_runs(program: Program) -> ActionTable:
    """Return the table of a program that torch can run; raise RefusedError with the reason, ProgramError for an invalid one.

    Whether actions wait for each other for ever is left to the lowering (`torch_lowering`).
    """
    _check_weights(program)
    table = check_program(program)
    _check_homes(table)
    _check_losses(table)
    return table


def _check_weights(program: Program) -> None:
    if not program.weights.synchronous:
        raise RefusedError(
            f"{program.name} has the weight rule {program.weights.rule.value}, but PyTorch's pipelining has one version of the "
            f"weights and flushes: {_REMEDY}, or take a schedule that flushes, such as 1f1b"
        )
    if program.num_mini_batches > 1:
        raise RefusedError(
            f"{program.name} has {program.num_mini_batches} mini-batches, but PyTorch's pipelining runs one a step: give "
            f"num_mini_batches 1, or {_REMEDY}"
        )


def _check_homes(table: ActionTable) -> None:
    """Refuse replicas and two directions: torch maps a stage to one device."""
    homes = table.by_stage(table.device[table.forward_row])
    spread = np.flatnonzero((homes != homes[:, :1]).any(axis=1))
    if len(spread):
        stage = int(spread[0])
        first, second = np.unique(homes[stage]).tolist()[:2]
        raise RefusedError(
            f"{table.program.name} runs stage {stage} on devices {first} and {second}, but PyTorch's pipelining keeps a stage on "
            f"one device: {_REMEDY}, or take a schedule without replicas and without a second direction"
        )


def _check_losses(table: ActionTable) -> None:
    """Refuse forwards of the last stage that do not stand in the order of their micro-batches."""
    program = table.program
    rows = table.by_stage(table.forward_row)[-1]
    wrong = np.flatnonzero(np.diff(rows) < 0)
    if len(wrong):
        j = int(wrong[0])
        last = (program.num_stages - 1) * program.total_micro_batches
        early, late = (name_action(program, int(rows[k]), last + k) for k in (j + 1, j))
        place = "" if program.origin is None else program.origin.place(int(table.device[rows[j]]))
        raise RefusedError(
            f"{place}{early} stands before {late} on the last stage, but PyTorch's pipelining numbers losses in the order of "
            f"these forwards and would take one for the other: put them in the order of their micro-batches, or {_REMEDY}"
        )
