"""When every action runs if each device takes at most one step a round; or who waits for whom for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.errors import DeadlockError
from schedir.ir.action import Kind
from schedir.ir.action_table import ActionTable, actions_of
from schedir.ir.deadlock import MOST_NAMED
from schedir.ir.grid import marked_grid
from schedir.ir.program import Ints
from schedir.ir.verify import name_action


def rounds_of(table: ActionTable, extra: Ints | None = None) -> Ints:
    """Return the round in which each entry runs, `extra` steps behind the one before it; raise DeadlockError if some never do.

    Devices go in their order: what one did in a round can be used by those behind it in that round, by others in the next.
    """
    program = table.program
    clock = _Clock([-1] * program.num_entries, table.device.tolist(), [column.tolist() for column in _needs(table)])
    start = program.device_start.tolist()
    steps = [0] * program.num_entries if extra is None else extra.tolist()
    position, now = start[:-1], [0] * program.num_devices
    waiting: dict[int, list[int]] = {}
    runnable = list(range(program.num_devices))
    # a device goes on until what it needs has not run; whoever runs that wakes it
    while runnable:
        own = runnable.pop()
        for row in range(position[own], start[own + 1]):
            missing, arrival = clock.look(row)
            if missing is not None:
                waiting.setdefault(missing, []).append(own)
                break
            at = clock.when[row] = max(now[own] + steps[row], arrival)
            now[own], position[own] = at + 1, row + 1
            runnable.extend(waiting.pop(row, ()))
    if waiting:
        raise _deadlock(table, position, waiting)
    return np.array(clock.when)


@dataclass(frozen=True, slots=True)
class _Clock:
    when: list[int]
    """Round of each entry, -1 before it has run."""
    device: list[int]
    needs: list[list[int]]
    """Columns of the entries that each entry waits for, -1 for none."""

    def look(self, row: int) -> tuple[int | None, int]:
        """Return the first entry that is missing, or None and the round in which all that is needed is there.

        What a device before this one did in a round can be used in that round, other things in the next.
        """
        arrival = 0
        for column in self.needs:
            need = column[row]
            if need >= 0:
                when = self.when[need]
                if when < 0:
                    return need, 0
                arrival = max(arrival, when + (self.device[need] >= self.device[row]))
        return None, arrival


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
