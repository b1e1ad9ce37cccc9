"""Prove a program right, once, at the border; explain what is wrong with the grid and the culprit marked.

Proved here: the shape makes sense, every F and B (or I and W) stands exactly once, on one device, F before R before B, I before W.
The passes of lowering prove the rest where they compute it: no cycle (`ir.order.order_search`), versions that obey the rule,
updates behind the gradients that they need. All of them raise what `fault` makes.
"""

from __future__ import annotations

import numpy as np

from schedir.errors import ProgramError
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable, actions_of, build_table
from schedir.ir.notation.grid import marked_grid
from schedir.ir.program import Program

_UNIT = {Kind.FORWARD: 1, Kind.BACKWARD: 2**13, Kind.INPUT_GRAD: 2**26, Kind.WEIGHT_GRAD: 2**39}
"""Counts of four kinds in one float64 without loss: each up to 2**13 - 1."""

_UNIT_OF_KIND = np.array([_UNIT.get(kind, 0) for kind in Kind], np.float64)
_WHOLE = _UNIT[Kind.FORWARD] + _UNIT[Kind.BACKWARD]
_SPLIT = _UNIT[Kind.FORWARD] + _UNIT[Kind.INPUT_GRAD] + _UNIT[Kind.WEIGHT_GRAD]


def check_program(program: Program) -> ActionTable:
    """Return the table of a valid program; raise ProgramError with its grid otherwise."""
    _check_shape(program)
    _check_kinds(program)
    _check_ranges(program)
    actions = actions_of(program)
    if program.num_stages * program.total_micro_batches > len(actions[1]):  # no tables of a size that a wrong shape may blow up
        raise _explain(program, _first_missing(actions[1]))
    table = build_table(program, actions)
    if not table.is_whole:
        raise _explain(program, _first_wrong(program, actions))
    _check_order(table)
    return table


def fault(program: Program, message: str, row: int | None = None) -> ProgramError:
    """Return the error for what is wrong at an entry (or with the whole): place and device before it, the grid beside it."""
    device = None if row is None else int(np.searchsorted(program.device_start, row, side="right")) - 1
    place = "" if program.origin is None else program.origin.place(device)
    where = "" if device is None else f"device {device}: "
    return ProgramError(f"{place}{where}{message}", marked_grid(program, row))


def name_action(program: Program, row: int, key: int | None = None) -> str:
    """Return the text of an entry's action; of an overlapped pair the half with this key, else the forward."""
    kind, stage, j = Kind(program.kind[row]), int(program.stage[row]), int(program.micro_batch[row])
    if kind is Kind.OVERLAPPED:
        kind = Kind.FORWARD
        if key is not None and key != stage * program.total_micro_batches + j:
            k = int(np.searchsorted(program.pairs.row, row))
            kind, stage, j = Kind(program.pairs.kind[k]), int(program.pairs.stage[k]), int(program.pairs.micro_batch[k])
    return f"{stage}{kind.letter}{j}"


def _check_shape(program: Program) -> None:
    for what in ("num_stages", "num_devices", "num_micro_batches", "num_mini_batches"):
        if getattr(program, what) < 1:
            raise ProgramError(f"{what} {getattr(program, what)} must be at least 1")
    sizes = program.device_start[1:] - program.device_start[:-1]
    if not sizes.all():
        empty = np.flatnonzero(sizes == 0)
        raise fault(program, f"device {empty[0]} has no actions: give it some, or leave it out (num_devices {program.num_devices})")


def _check_kinds(program: Program) -> None:
    if program.kind.max() > Kind.UPDATE:  # those behind are placed by compiling
        row = int(np.flatnonzero(program.kind > Kind.UPDATE)[0])
        word = Kind(program.kind[row]).word
        raise fault(program, f"{program.entry(row)} is a {word}, which compiling places: leave it out", row)
    if len(program.pairs):
        halves = np.flatnonzero((program.pairs.kind != Kind.BACKWARD) & (program.pairs.kind != Kind.INPUT_GRAD))
        if len(halves):
            row = int(program.pairs.row[halves[0]])
            raise fault(program, f"{program.entry(row)}: an overlapped pair is one F and one B or I", row)


def _check_ranges(program: Program) -> None:
    pairs = program.pairs
    columns: list[tuple[Ints, Ints | None, str]] = [(program.stage, None, "stage"), (program.micro_batch, None, "micro-batch")]
    if len(pairs):
        columns += [(pairs.stage, pairs.row, "stage"), (pairs.micro_batch, pairs.row, "micro-batch")]
    for column, rows, what in columns:
        limit = program.num_stages if what == "stage" else program.total_micro_batches
        if column.min() < 0 or column.max() >= limit:
            at = int(np.flatnonzero((column < 0) | (column >= limit))[0])
            row = at if rows is None else int(rows[at])
            raise fault(program, f"{program.entry(row)} has {what} {column[at]}, but the shape says 0..{limit - 1}", row)


def _first_missing(key: Ints) -> int:
    """Return the first key that no action has."""
    present = np.unique(key)
    # the keys found must be 0, 1, 2, ...; the -1 behind them makes a gap at the end differ, too
    return int(np.flatnonzero(np.append(present, -1) != np.arange(len(present) + 1))[0])


def _first_wrong(program: Program, actions: tuple[Ints, Ints, Ints]) -> int:
    """Return the first key whose actions are not one F and one B, or one F, I and W; if there is none, one with two R."""
    kind, key, _ = actions
    # one count for all four kinds: a key whose sum is neither one F and one B nor one each of F, I and W is wrong
    count = np.bincount(key, weights=_UNIT_OF_KIND[kind], minlength=program.num_stages * program.total_micro_batches)
    wrong = np.flatnonzero((count != _WHOLE) & (count != _SPLIT))
    if len(wrong):
        return int(wrong[0])
    again = np.bincount(key[kind == Kind.RECOMPUTE])
    if again.max(initial=0) > 1:
        return int(again.argmax())
    return int(np.bincount(key).argmax())  # so many of one that the counts ran over


def _explain(program: Program, key: int) -> ProgramError:
    """Say what is wrong with the actions of one stage on one micro-batch."""
    kinds, keys, rows = actions_of(program)
    stage, j = divmod(key, program.total_micro_batches)
    found = {kind: rows[(kinds == kind) & (keys == key)].tolist() for kind in (*_UNIT, Kind.RECOMPUTE)}
    for kind, places in found.items():
        if len(places) > 1:
            return fault(program, f"{stage}{kind.letter}{j} stands {len(places)} times: every action once", places[1])
    split = found[Kind.INPUT_GRAD] or found[Kind.WEIGHT_GRAD]
    if split and found[Kind.BACKWARD]:
        return fault(
            program,
            f"{stage}B{j} stands beside {stage}{'I' if found[Kind.INPUT_GRAD] else 'W'}{j}: "
            "a backward is whole (B) or split (I and W), so leave one out",
            found[Kind.BACKWARD][0],
        )
    needed = (Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD) if split else (Kind.FORWARD, Kind.BACKWARD)
    missing = [kind for kind in needed if not found[kind]]
    if len(missing) == len(needed):
        return _explain_absent(program, stage, j)
    names = " and ".join(f"{stage}{kind.letter}{j}" for kind in missing) + (" is" if len(missing) == 1 else " are")
    waiting = next(kind for kind in reversed(needed) if found[kind])
    waits = "has no gradient" if waiting is Kind.FORWARD else "waits for ever"
    if Kind.FORWARD not in missing and waiting is not Kind.FORWARD:
        waits = "is half a backward" if waiting is Kind.INPUT_GRAD else "waits for ever"
    name = f"{stage}{waiting.letter}{j}"
    return fault(program, f"{name} {waits}: {names} missing ({_micro_batches(program)})", found[waiting][0])


def _explain_absent(program: Program, stage: int, j: int) -> ProgramError:
    """Say that neither the forward nor the backward of a stage on a micro-batch stands anywhere, and who waits for them."""
    kinds, keys, rows = actions_of(program)
    total = program.total_micro_batches
    if not (keys // total == stage).any():
        return fault(program, f"stage {stage} stands on no device: num_stages is {program.num_stages}")
    if not (keys % total == j).any():
        return fault(
            program,
            f"micro-batch {j} stands on no device: {program.num_mini_batches} x {program.num_micro_batches} micro-batches "
            "are announced (num_mini_batches x num_micro_batches)",
        )
    missing = f"{stage}F{j} and {stage}B{j} are missing ({_micro_batches(program)})"
    # who would wait for them: the next stage's F, the previous stage's B or I
    neighbours = (keys == (stage + 1) * total + j) & (kinds == Kind.FORWARD) & (stage + 1 < program.num_stages)
    neighbours |= (keys == (stage - 1) * total + j) & ((kinds == Kind.BACKWARD) | (kinds == Kind.INPUT_GRAD))
    at = np.flatnonzero(neighbours)
    if not len(at):
        return fault(program, missing)
    name = f"{keys[at[0]] // total}{Kind(kinds[at[0]]).letter}{j}"
    return fault(program, f"{name} waits for ever: {missing}", int(rows[at[0]]))


def _micro_batches(program: Program) -> str:
    return f"micro-batches 0..{program.total_micro_batches - 1}"


def _check_order(table: ActionTable) -> None:
    forward, gradient, last, device = table.forward_row, table.gradient_row, table.last_row, table.device
    # devices first: rows tell what stands earlier on one device only
    home = device[forward]
    elsewhere = "{name} stands on another device than its forward: one device runs both, so move one of them"
    _report(table, home != device[gradient], gradient, say=elsewhere)
    if (forward >= gradient).any():
        _report(table, forward == gradient, gradient, say="{name} overlaps its own backward: pair it with another micro-batch's")
        _report(table, forward > gradient, gradient, say="{name} stands before its forward: move it behind")
    # without a split the table has one array for both
    if last is not gradient:
        _report(table, home != device[last], last, say=elsewhere)
        _report(table, gradient > last, last, say="{name} stands before its input gradient: move it behind")
    if table.recompute_row is not None:
        again = table.recompute_row
        wrong = (again >= 0) & ((again <= forward) | (again >= gradient))
        _report(table, wrong, again, say="{name} stands not between its forward and its backward: move it there")


def _report(table: ActionTable, wrong: Ints, row: Ints, *, say: str) -> None:
    """Raise for the first key that is `wrong`, whose culprit is at `row` by key."""
    found = np.flatnonzero(wrong)
    if len(found):
        at = int(row[found[0]])
        raise fault(table.program, say.format(name=name_action(table.program, at, int(found[0]))), at)
