"""How long what was handed over is read: a stage's input and the gradient of its output until its last backward.

F(s, j) takes the input, B(s, j) the gradient: both are read until B(s, j), or W(s, j) where the backward is split
U(s) takes the total of all replicas: it is read until U(s)
"""

from __future__ import annotations

from executor.plan.actions import READERS
from executor.plan.plan import Plan


def last_readers(plan: Plan) -> dict[tuple[int, int], int]:
    """Return by (task, half) of who takes a value the task behind which nobody reads it."""
    actions = [action for both in plan.tasks for action in both]
    # actions stand in the order of their lanes, and one device does all of a stage's for a micro-batch: the last one stays
    last = {(action.stage, action.micro_batch): action.task for action in actions if action.kind in READERS}
    return {
        (action.task, action.half): last[action.stage, action.micro_batch] if action.kind in READERS else action.task
        for action in actions
    }
