"""A program or a graph as a grid of ASCII cells that fits the terminal.

    grid(graph)        one column per slot; a `^` behind an action: it reads predicted weights

        device 0 | F0 F1 .  .  B1 B0*
        device 1 | .  F0 F1 B1 B0*.
        . idle, every action takes one slot   * an update stands behind it

    marked_grid(program, row)        the orders as they are written, with what is wrong in them

        device 0 | 0F0 0F1 0B0 0B1
        device 1 | 1F0 1B0 1B1 1F1
                           ^^^ <-- this is wrong

What does not fit is left out, with a mark that says how much.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import numpy as np

from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.graph import TaskGraph
from schedir.ir.in_order import TaskTimes, evaluate
from schedir.ir.program import Ints, Program

GAP = "..."
"""Stands for what is left out."""

MOST_DEVICES = 24
"""A marked grid shows at most so many devices, those around the culprit."""

_NO_SLOT = (Kind.UPDATE, Kind.PREDICT, Kind.TRANSFER, Kind.REDUCE, Kind.GATHER, Kind.RELEASE)


def grid(what: Program | TaskGraph, *, width: int | None = None) -> str:
    """Return a grid of at most `width` columns of text, the terminal's if not given; long ones lack their middle.

    Of a graph the columns are time slots in which every action takes one and waits for what it needs; of a program that is
    not compiled they are the actions in their order.
    """
    width = width or shutil.get_terminal_size().columns
    if isinstance(what, TaskGraph):
        return _draw_slots(what, width)
    program, full = what, not _hosts_one_stage(what)
    table = [[_text(entry, full=full) for entry in order] for order in program.orders()]
    names = _names(program, full=full)
    size = max((len(cell) for row in table for cell in row), default=0) + 1
    columns, note = _middle_out(max(map(len, table)), _capacity(names, size, width), "actions")
    cells = [[GAP if at is None else row[at] if at < len(row) else "" for at in columns] for row in table]
    return "\n".join([*_lines(names, cells, size), *note])


def marked_grid(
    program: Program, rows: int | Sequence[int] | None = None, *, mark: str = "this is wrong", width: int | None = None
) -> str:
    """Return the orders with `mark` at each of `rows` (numbers of entries, one a device), each where it can be seen."""
    width = width or shutil.get_terminal_size().columns
    marked = [] if rows is None else [rows] if isinstance(rows, int) else list(rows)
    culprits = {device: row - int(program.device_start[device]) for row in marked for device in [_device(program, row)]}
    names = _names(program, full=True)
    first_device, first_column = next(iter(culprits.items()), (0, 0))
    lines = []
    for device in _around(first_device, program.num_devices, MOST_DEVICES):
        if device is None:
            lines.append(GAP)
            continue
        cells = [_text(entry, full=True) for entry in program.order(device)]
        lines += _order(names[device], cells, culprits.get(device), focus=first_column, width=width, mark=mark)
    return "\n".join(lines)


def _order(name: str, cells: list[str], culprit: int | None, *, focus: int, width: int, mark: str) -> list[str]:
    """Return the line of a device around its culprit or, without one, around `focus`; below it the mark."""
    size = max(map(len, cells), default=0) + 1
    columns = _around(focus if culprit is None else culprit, len(cells), _capacity([name], size, width))
    shown = [GAP if at is None else cells[at] for at in columns]
    lines = _lines([name], [shown], size)
    if culprit is None:
        return lines
    start = len(name) + 3 + size * columns.index(culprit)
    carets, label = "^" * len(cells[culprit]), f"<-- {mark}"
    if start + len(carets) + 1 + len(label) > width and start > len(mark) + 5:
        return [*lines, f"{mark} --> {carets}".rjust(start + len(carets))]
    return [*lines, f"{' ' * start}{carets} {label}"]


def _draw_slots(graph: TaskGraph, width: int) -> str:
    program, full = graph.program, not _hosts_one_stage(graph.program)
    takes_slot = ~np.isin(graph.kind, _NO_SLOT)
    slot = evaluate(graph, TaskTimes(takes_slot.astype(np.float64))).start.astype(np.int64)
    predicted, updated = _predicted(graph), _updated(graph, takes_slot)
    names = _names(program, full=full)
    size = _cell_size(graph, full=full) + max(bool(predicted.any()) + bool(updated.any()), 1)  # a mark may stand for the space
    columns, note = _middle_out(int(slot[takes_slot].max()) + 1, _capacity(names, size, width), "slots")
    place = {at: column for column, at in enumerate(columns) if at is not None}
    cells = [[GAP if at is None else "." for at in columns] for _ in names]
    for task in np.flatnonzero(takes_slot & np.isin(slot, list(place))).tolist():
        text = _task_text(graph, task, full=full) + "^" * bool(predicted[task]) + "*" * bool(updated[task])
        cells[int(graph.device[task])][place[int(slot[task])]] = text
    legend = [". idle, every action takes one slot"]
    legend += ["* an update stands behind it"] * bool(updated.any()) + ["^ reads predicted weights"] * bool(predicted.any())
    return "\n".join([*_lines(names, cells, size), *note, "   ".join(legend)])


def _predicted(graph: TaskGraph) -> Ints:
    """bool per task: it reads predicted weights."""
    predicted = graph.predicted_by >= 0
    predicted[graph.pairs.task[graph.pairs.predicted_by >= 0]] = True
    return predicted


def _updated(graph: TaskGraph, takes_slot: Ints) -> Ints:
    """bool per task: it takes a slot and the next thing on its device is an update."""
    last = np.maximum.accumulate(np.where(takes_slot, np.arange(graph.num_tasks), -1))
    updated = np.zeros(graph.num_tasks, bool)
    updated[last[graph.kind == Kind.UPDATE]] = True
    return updated


def _cell_size(graph: TaskGraph, *, full: bool) -> int:
    """Return the length of the longest cell that there can be."""
    number = len(str(graph.program.total_micro_batches - 1))
    half = number + 1 + (len(str(graph.program.num_stages - 1)) if full else 0)
    return 2 * half + 1 if len(graph.pairs) else half


def _task_text(graph: TaskGraph, task: int, *, full: bool) -> str:
    view = graph.task(task)
    if view.kind is not Kind.OVERLAPPED:
        return _text(Action(view.stage, view.kind, view.micro_batch), full=full)
    pairs, k = graph.pairs, int(np.searchsorted(graph.pairs.task, task))
    backward = Action(int(pairs.stage[k]), Kind(pairs.kind[k]), int(pairs.micro_batch[k]))
    return _text(Overlapped(Action(view.stage, Kind.FORWARD, view.micro_batch), backward), full=full)


def _text(entry: Entry, *, full: bool) -> str:
    if isinstance(entry, Overlapped):
        return f"{_text(entry.forward, full=full)}&{_text(entry.backward, full=full)}"
    return str(entry) if full else f"{entry.kind.letter}{entry.micro_batch}"


def _hosts_one_stage(program: Program) -> bool:
    """Tell whether every device runs one stage only, so that cells need not name it."""
    device, paired = program.device_of_entry(), program.device_of_entry()[program.pairs.row]
    stages = np.concatenate((program.stage, program.pairs.stage)).astype(np.int64)
    hosted = np.unique(np.concatenate((device, paired)) * np.int64(program.num_stages) + stages) // program.num_stages
    return len(hosted) == len(np.unique(hosted))


def _names(program: Program, *, full: bool) -> list[str]:
    names = [f"device {device}" for device in range(program.num_devices)]
    firsts = program.device_start[:-1]
    if not full and (np.diff(program.device_start) > 0).all():
        stages = program.stage[firsts].tolist()
        if stages != list(range(program.num_devices)):
            names = [f"{name} stage {stage}" for name, stage in zip(names, stages, strict=True)]
    size = max(map(len, names))
    return [name.ljust(size) for name in names]


def _device(program: Program, row: int) -> int:
    return int(np.searchsorted(program.device_start, row, side="right")) - 1


def _capacity(names: list[str], size: int, width: int) -> int:
    """Return how many cells of `size` fit behind the names, at least 3."""
    return max((width - len(names[0]) - 3) // size, 3)


def _middle_out(count: int, capacity: int, unit: str) -> tuple[list[int | None], list[str]]:
    """Return the columns to show, None for the gap, and a line that says what the gap is."""
    if count <= capacity:
        return list(range(count)), []
    head, tail = capacity // 2, (capacity - 1) // 2
    note = f"{GAP} {count - head - tail} of {count} {unit} left out: {head} to {count - tail - 1}"
    return [*range(head), None, *range(count - tail, count)], [note]


def _around(focus: int, count: int, capacity: int) -> list[int | None]:
    """Return `capacity` of `count` columns around `focus`, None for what is left out on either side."""
    if count <= capacity:
        return list(range(count))
    low = min(max(focus - capacity // 2, 0), count - capacity)
    columns: list[int | None] = list(range(low, low + capacity))
    if low > 0:
        columns[0] = None
    if low + capacity < count:
        columns[-1] = None
    return columns


def _lines(names: list[str], cells: list[list[str]], size: int) -> list[str]:
    return [f"{name} | {''.join(cell.ljust(size) for cell in row)}".rstrip() for name, row in zip(names, cells, strict=True)]
