"""Explain a deadlock: which devices wait for each other in a circle, where each stands and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from schedir.errors import DeadlockError
from schedir.ir.arrays import Ints
from schedir.ir.notation.grid import marked_grid
from schedir.ir.order.precedence import Precedence
from schedir.ir.program import Program

MOST_NAMED = 8
"""A message names at most so many waiting actions."""


def explain_deadlock(
    program: Program, waiting: Sequence[tuple[int, int]], *, precedence: Precedence, entry_task: Ints, label: Callable[[int], str]
) -> DeadlockError:
    """Return the error for a program that cannot run to its end, whatever the order of arrival.

    `waiting` has the next task of every stuck lane and the task that it waits for; `entry_task` the task of every entry of
    the program; `label` gives the text of a task that is no entry.
    """

    def name(task: int) -> str:
        row = int(np.searchsorted(entry_task, task))
        return str(program.entry(row)) if row < len(entry_task) and entry_task[row] == task else label(task)

    stuck = {_lane(precedence, head): (head, missing) for head, missing in waiting}
    circle = _circle(precedence, stuck)
    parts = [
        f"device {device}: {name(head)} waits for {name(need)}{_whose(precedence, device, need)}" for device, head, need in circle
    ]
    named = "; ".join(parts[:MOST_NAMED]) + ("; ..." if len(parts) > MOST_NAMED else "")
    rows = [min(int(np.searchsorted(entry_task, head)), program.num_entries - 1) for _, head, _ in circle]
    place = "" if program.origin is None else program.origin.place(circle[0][0])
    return DeadlockError(
        f"{place}deadlock: {named}: none of them can ever start, so change the order of one of these devices",
        marked_grid(program, rows, mark="waits for ever"),
    )


def _whose(precedence: Precedence, device: int, need: int) -> str:
    other = _lane(precedence, need)
    return ", which stands behind it" if other == device else f" of device {other}"


def _circle(precedence: Precedence, stuck: dict[int, tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (device, its next task, the compute task that it waits for) around the circle."""
    # whom a stuck lane waits for is stuck as well, so going from one to the next comes back to a lane of the path: what lies
    # before it only leads into the circle and is cut off
    device = min(stuck)  # compute lanes come first
    path: dict[int, tuple[int, int, int]] = {}
    while device not in path:
        head, needed = stuck[device]
        while needed >= precedence.num_compute:  # what a transfer carries, or what a reduction still lacks
            sources = precedence.edge_source[precedence.edge_start[needed] : precedence.edge_start[needed + 1]]
            needed = int(sources[0]) if len(sources) == 1 else stuck[_lane(precedence, needed)][1]
        path[device] = (device, head, needed)
        device = _lane(precedence, needed)
    return list(path.values())[list(path).index(device) :]


def _lane(precedence: Precedence, task: int) -> int:
    return int(np.searchsorted(precedence.lane_start, task, side="right")) - 1
