"""Where every action of a program stands: dense tables from (stage, micro-batch) to rows.

A row is the number of an entry in the program's arrays, device after device, so on one device "earlier" means "smaller row".
The key of (stage, micro-batch) is stage x total micro-batches + micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.program import Program


@dataclass(frozen=True, slots=True, eq=False)
class ActionTable:
    """Rows of a program's actions by key; only meaningful once `verify` has found every action exactly once."""

    program: Program
    device: Ints
    """Device of each row."""
    forward_row: Ints
    """Row of F by key."""
    gradient_row: Ints
    """Row of the action that sends the input gradient, B or I, by key."""
    last_row: Ints
    """Row behind which the gradient of the key is complete, that of B or W."""
    recompute_row: Ints | None
    """Row of R by key, -1 where there is none; None if the program places no R."""
    split: Ints
    """bool by key: the backward is split into I and W."""
    counts: tuple[int, ...]
    """Actions of every `Kind`, halves of overlapped pairs apart."""

    @property
    def num_keys(self) -> int:
        return len(self.forward_row)

    @property
    def is_whole(self) -> bool:
        """Every F and B (or I and W) stands exactly once, and no R twice: as many as there are keys, and none is missing."""
        of = self.counts
        again = 0 if self.recompute_row is None else np.count_nonzero(self.recompute_row >= 0)
        # as many actions as keys, and every key's row filled: then none can stand twice
        each = of[Kind.FORWARD], of[Kind.BACKWARD] + of[Kind.INPUT_GRAD], of[Kind.BACKWARD] + of[Kind.WEIGHT_GRAD]
        if each != (self.num_keys,) * 3 or of[Kind.RECOMPUTE] != again:
            return False
        rows = (self.forward_row, self.gradient_row) + (() if self.last_row is self.gradient_row else (self.last_row,))
        return all(row.min() >= 0 for row in rows)

    @property
    def backward_row(self) -> Ints:
        """Row with which the backward of a key begins, by key: that of its R if the program places one, else that of B or I."""
        if self.recompute_row is None:
            return self.gradient_row
        return np.where(self.recompute_row >= 0, self.recompute_row, self.gradient_row)

    def by_stage(self, column: Ints) -> Ints:
        """Return a column by key as a matrix (num_stages, total micro-batches)."""
        return column.reshape(self.program.num_stages, self.program.total_micro_batches)

    def hosts(self) -> list[list[int]]:
        """Return for every stage the devices on which its actions stand, increasing."""
        devices = self.by_stage(self.device[self.forward_row])
        # nearly always one each, and then no stage needs a sort
        if (devices == devices[:, :1]).all():
            return [[device] for device in devices[:, 0].tolist()]
        return [np.unique(row).tolist() for row in devices]


def actions_of(program: Program) -> tuple[Ints, Ints, Ints]:
    """Return (kind, key, row) of all single actions; halves of overlapped pairs stand apart, backwards at the end."""
    total = program.total_micro_batches
    key = program.stage.astype(np.int64) * total + program.micro_batch
    kind, row = program.kind, np.arange(program.num_entries)
    # the columns of an overlapped entry are its forward's already: only its kind says pair
    if len(program.pairs):
        kind = np.where(kind == Kind.OVERLAPPED, np.int8(Kind.FORWARD), kind)
        pair_key = program.pairs.stage.astype(np.int64) * total + program.pairs.micro_batch
        kind, key, row = (
            np.concatenate((kind, program.pairs.kind)),
            np.concatenate((key, pair_key)),
            np.concatenate((row, program.pairs.row)),
        )
    return kind, key, row


def build_table(program: Program, actions: tuple[Ints, Ints, Ints] | None = None) -> ActionTable:
    """Tabulate the rows of all actions; where an action stands twice the last wins, where it is missing the row is -1.

    `actions` is what `actions_of` returns, if it is known already.
    """
    kind, key, row = actions or actions_of(program)
    num_keys = program.num_stages * program.total_micro_batches

    def rows_of(*kinds: Kind) -> Ints:
        column = np.full(num_keys, -1)
        for wanted in kinds:
            chosen = np.flatnonzero(kind == wanted)
            column[key[chosen]] = row[chosen]
        return column

    present = np.bincount(kind, minlength=len(Kind)).tolist()
    splits = present[Kind.INPUT_GRAD] > 0 or present[Kind.WEIGHT_GRAD] > 0
    gradient = rows_of(Kind.BACKWARD, Kind.INPUT_GRAD) if splits else rows_of(Kind.BACKWARD)
    # without a split one array for both, which tells later passes that there is nothing to tell apart
    last = rows_of(Kind.BACKWARD, Kind.WEIGHT_GRAD) if splits else gradient
    return ActionTable(
        program=program,
        device=program.device_of_entry(),
        forward_row=rows_of(Kind.FORWARD),
        gradient_row=gradient,
        last_row=last,
        recompute_row=rows_of(Kind.RECOMPUTE) if present[Kind.RECOMPUTE] else None,
        split=rows_of(Kind.INPUT_GRAD) >= 0 if splits else np.zeros(num_keys, bool),
        counts=tuple(present),
    )
