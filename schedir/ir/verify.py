"""Prove a program right, once, at the border; explain what is wrong with the grid and the culprit marked.

Proved here: every F and B (or I and W) exactly once, on one device, F before R before B, I before W. The passes of lowering
prove the rest where they compute it: no cycle (`ir.topology`), versions that obey the rule, replicas that agree.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from schedir.errors import DeadlockError, ProgramError
from schedir.ir.action import Kind
from schedir.ir.action_table import ActionTable, actions_of, build_table
from schedir.ir.program import Ints, Program
from schedir.ir.text import marked_grid
from schedir.ir.topology import Wiring

_ONCE = {Kind.FORWARD: 1, Kind.BACKWARD: 16, Kind.INPUT_GRAD: 256, Kind.WEIGHT_GRAD: 4096}


def check_program(program: Program) -> ActionTable:
    """Return the table of a valid program; raise ProgramError with its grid otherwise."""
    _check_ranges(program)
    _check_once(program)
    table = build_table(program)
    _check_order(table)
    return table


def _fail(program: Program, message: str, row: int | None) -> ProgramError:
    return ProgramError(message, marked_grid(program, row))


def _check_ranges(program: Program) -> None:
    limits: tuple[tuple[str, Ints, int], ...] = (
        ("stage", program.stage, program.num_stages),
        ("micro-batch", program.micro_batch, program.total_micro_batches),
        ("stage", program.pairs.stage, program.num_stages),
        ("micro-batch", program.pairs.micro_batch, program.total_micro_batches),
    )
    for what, column, limit in limits:
        if len(column) and not (column.min() >= 0 and column.max() < limit):
            at = int(np.flatnonzero((column < 0) | (column >= limit))[0])
            row = at if column is program.stage or column is program.micro_batch else int(program.pairs.row[at])
            raise _fail(program, f"{_name(program, row)} has {what} {column[at]}, but there are {what}s 0..{limit - 1}", row)


def _check_once(program: Program) -> None:
    kind, key, _ = actions_of(program)
    weight = np.zeros(len(Kind), np.int64)
    for counted, value in _ONCE.items():
        weight[counted] = value
    num_keys = program.num_stages * program.total_micro_batches
    count = np.bincount(key, weights=weight[kind], minlength=num_keys).astype(np.int64)
    wrong = np.flatnonzero((count != 1 + 16) & (count != 1 + 256 + 4096))
    if len(wrong):
        raise _explain_count(program, int(wrong[0]), int(count[wrong[0]]))


def _explain_count(program: Program, key: int, count: int) -> ProgramError:
    stage, j = divmod(key, program.total_micro_batches)
    found = {kind: count // value % 16 for kind, value in _ONCE.items()}
    micro_batches = f"micro-batches 0..{program.total_micro_batches - 1}"
    for kind, times in found.items():
        if times > 1:
            name = f"{stage}{kind.letter}{j}"
            return _fail(program, f"{name} stands {times} times: every action once", _row_of(program, kind, key, last=True))
    split = found[Kind.INPUT_GRAD] or found[Kind.WEIGHT_GRAD]
    if split and found[Kind.BACKWARD]:
        row = _row_of(program, Kind.BACKWARD, key)
        return _fail(
            program,
            f"{stage}B{j} stands beside {stage}I{j} or {stage}W{j}: a backward is whole (B) or split (I and W)",
            row,
        )
    needed = (Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD) if split else (Kind.FORWARD, Kind.BACKWARD)
    missing = [f"{stage}{kind.letter}{j}" for kind in needed if not found[kind]]
    row, waits = _who_waits(program, stage, j, found=found)
    verb = "is" if len(missing) == 1 else "are"
    return _fail(program, f"{waits}{' and '.join(missing)} {verb} missing ({micro_batches})", row)


def _who_waits(program: Program, stage: int, j: int, *, found: dict[Kind, int]) -> tuple[int | None, str]:
    """Return the row of the action that waits for what is missing on this stage, and how to say so."""
    total = program.total_micro_batches
    device = program.device_of_entry()
    for kind in (Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD):
        if found[kind] and not found[Kind.FORWARD]:
            row = _row_of(program, kind, stage * total + j)
            assert row is not None
            return row, f"device {device[row]}: {stage}{kind.letter}{j} waits for ever: "
    return None, ""


def _row_of(program: Program, kind: Kind, key: int, *, last: bool = False) -> int | None:
    kinds, keys, rows = actions_of(program)
    found = rows[(kinds == kind) & (keys == key)]
    return None if not len(found) else int(found[-1 if last else 0])


def _check_order(table: ActionTable) -> None:
    device = table.device
    same = (device[table.forward_row] == device[table.gradient_row]) & (device[table.gradient_row] == device[table.last_row])
    _report(
        table,
        ~same,
        table.gradient_row,
        say=lambda name: f"{name} stands on another device than its forward: move it there",
    )
    _report(
        table,
        table.forward_row >= table.gradient_row,
        table.gradient_row,
        say=lambda name: f"{name} stands before its forward: move it behind",
    )
    late = table.split & (table.gradient_row >= table.last_row)
    _report(table, late, table.last_row, say=lambda name: f"{name} stands before its input gradient: move it behind")
    if table.recompute_row is not None:
        present = table.recompute_row >= 0
        bad = present & ((table.recompute_row <= table.forward_row) | (table.recompute_row >= table.gradient_row))
        bad |= present & (device[np.maximum(table.recompute_row, 0)] != device[table.forward_row])
        _report(
            table,
            bad,
            table.recompute_row,
            say=lambda name: f"{name} must stand between its forward and its backward, on their device",
        )


def _report(table: ActionTable, wrong: Ints, row: Ints, *, say: Callable[[str], str]) -> None:
    found = np.flatnonzero(wrong)
    if len(found):
        at = int(row[found[0]])
        raise _fail(table.program, f"device {table.device[at]}: {say(_name(table.program, at, int(found[0])))}", at)


def _name(program: Program, row: int, key: int | None = None) -> str:
    """Name a row's action; of a pair the half that has the key, else the forward."""
    kind, stage, j = Kind(program.kind[row]), int(program.stage[row]), int(program.micro_batch[row])
    if kind is Kind.OVERLAPPED:
        kind = Kind.FORWARD
        if key is not None and key != stage * program.total_micro_batches + j:
            k = int(np.searchsorted(program.pairs.row, row))
            kind, stage, j = Kind(program.pairs.kind[k]), int(program.pairs.stage[k]), int(program.pairs.micro_batch[k])
    return f"{stage}{kind.letter}{j}"


def deadlock(table: ActionTable, entry_task: Ints, waiting: tuple[tuple[int, int], ...], *, wiring: Wiring) -> DeadlockError:
    """Name the actions that wait for each other: the head of every stuck device and the action it waits for."""
    program = table.program
    num_compute = int(wiring.lane_start[wiring.num_devices])

    def entry_of(task: int) -> int | None:
        """Return the entry whose result a task carries; of an inserted task the entry behind it."""
        while task >= num_compute:
            task = int(wiring.edge_source[wiring.edge_start[task]])
        at = int(np.searchsorted(entry_task, task))
        return at if at < len(entry_task) else None

    lines, first = [], None
    for task, source in waiting:
        if task >= num_compute:
            continue
        row, needs = entry_of(task), entry_of(source)
        if row is not None and needs is not None:
            first = row if first is None else first
            lines.append(
                f"device {table.device[row]}: {_name(program, row)} waits for {_name(program, needs)} of {table.device[needs]}"
            )
    text = "; ".join(lines[:8]) + ("; …" if len(lines) > 8 else "")
    return DeadlockError(
        f"deadlock: {text}: no order of arrival can end this, so change the order of one of these devices",
        marked_grid(program, first),
    )
