"""When every action runs if each device takes at most one step a round; or who waits for whom for ever."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.errors import DeadlockError
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable, actions_of
from schedir.ir.checks.deadlock import MOST_NAMED
from schedir.ir.checks.verify import name_action
from schedir.ir.notation.grid import marked_grid

UNSEEN = -1


def rounds_of(table: ActionTable, extra: Ints | None = None) -> Ints:
    """Return the round in which each entry runs, `extra` steps behind the one before it; raise DeadlockError if some never do.

    Devices go in their order: what one did in a round can be used by those behind it in that round, by others in the next.
    """
    program = table.program
    needs = [column.tolist() for column in _needs(table)]
    home = table.device.tolist()
    start = program.device_start.tolist()
    steps = [0] * program.num_entries if extra is None else extra.tolist()
    when = [UNSEEN] * program.num_entries
    position, now = start[:-1], [0] * program.num_devices
    waiting: dict[int, list[int]] = {}
    runnable = list(range(program.num_devices))
    # a device goes on until what it needs has not run; whoever runs that wakes it
    while runnable:
        own = runnable.pop()
        at = now[own]
        for row in range(position[own], start[own + 1]):
            arrival, missing = _arrival(row, own, needs, when=when, home=home)
            if missing >= 0:
                waiting.setdefault(missing, []).append(own)
                break
            at = max(at + steps[row], arrival)
            when[row] = at
            at += 1
            position[own] = row + 1
            if row in waiting:
                runnable += waiting.pop(row)
        now[own] = at
    if waiting:
        raise _deadlock(table, position, waiting)
    return np.array(when)


def _arrival(row: int, own: int, needs: list[list[int]], *, when: list[int], home: list[int]) -> tuple[int, int]:
    """Return the round in which all that an entry needs is there, and the first entry that has not run (-1: all have).

    What a device before this one did in a round can be used in that round, other things in the next.
    """
    arrival = 0
    for column in needs:
        need = column[row]
        if need >= 0:
            ran = when[need]
            if ran < 0:
                return 0, need
            ran += home[need] >= own
            if ran > arrival:  # noqa: PLR1730 - max() costs three times as much here
                arrival = ran
    return arrival, -1


def _needs(table: ActionTable) -> list[Ints]:
    """Return for every entry the entries that it waits for: one column, for programs with pairs two."""
    program = table.program
    kind, key, row = actions_of(program)
    total = program.total_micro_batches
    need = np.full(len(key), -1)
    # `total` keys further down is the same micro-batch on the stage before, further up on the next
    forward = (kind == Kind.FORWARD) & (key >= total)
    need[forward] = table.forward_row[key[forward] - total]
    gradient = ((kind == Kind.BACKWARD) | (kind == Kind.INPUT_GRAD)) & (key < table.num_keys - total)
    need[gradient] = table.gradient_row[key[gradient] + total]
    columns = [need[: program.num_entries]]
    if len(program.pairs):
        second = np.full(program.num_entries, -1)
        second[row[program.num_entries :]] = need[program.num_entries :]
        columns.append(second)
    return columns


def _deadlock(table: ActionTable, position: Sequence[int], waiting: dict[int, list[int]]) -> DeadlockError:
    program = table.program
    stuck = sorted((device, need) for need, devices in waiting.items() for device in devices)
    named = [f"device {d}: {program.entry(position[d])} waits for {name_action(program, need)}" for d, need in stuck]
    text = "; ".join(named[:MOST_NAMED]) + ("; ..." if len(named) > MOST_NAMED else "")
    place = "" if program.origin is None else program.origin.place(stuck[0][0])
    return DeadlockError(
        f"{place}deadlock: {text}: none of them can ever start, so change the order of one of these devices",
        marked_grid(program, [position[device] for device, _ in stuck], mark="waits for ever"),
    )
