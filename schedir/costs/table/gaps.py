"""Refusals where a graph asks for work whose time a table does not state.

A time that is not stated is NaN in the arrays of `Resolved`. That is no fault of the table: most graphs never read it. It is one
as soon as a task's duration comes out as NaN, so it is looked for there and nowhere before.
"""

from __future__ import annotations

import numpy as np

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program


def refuse_gaps(graph: TaskGraph, duration: Floats, name: str, *, measured: bool) -> None:
    """Raise RefusedError or ArgumentError if a task has no duration; `name` is the table's, `measured` where it comes from."""
    unknown = np.flatnonzero(np.isnan(duration))
    if not len(unknown):
        return
    task = graph.task(int(unknown[0]))
    if task.kind is Kind.RECOMPUTE:
        raise RefusedError(
            f"recompute selective: {name} does not state recompute_selective of stage {task.stage}: "
            "give it, or use recompute always"
        )
    raise halves_missing(graph.program, task.stage, name, measured=measured)


def halves_missing(program: Program, stage: int, name: str, *, measured: bool) -> ArgumentError:
    """Return the error for a program that splits backward where the table states only the whole of it."""
    # forward and backward are always stated, so a gap in other work than R is a half
    remedy = " (schedir profile --split-backward measures them)" if measured else ""
    return ArgumentError(
        f"{program.name} splits backward, but {name} does not state the halves of stage {stage}: "
        f"give input_grad and weight_grad{remedy}"
    )
