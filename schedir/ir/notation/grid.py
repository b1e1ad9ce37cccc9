"""A program or a graph as a grid of ASCII cells that fits the terminal.

    grid(graph)        one column per slot; a `^` behind an action: it reads predicted weights

        device 0 | F0 F1 .  .  B1 B0*
        device 1 | .  F0 F1 B1 B0*.
        . idle, every action takes one slot   * an update stands behind it

    marked_grid(program, row)        the orders as they are written, with what is wrong in them

        device 0 | 0F0 0F1 0B0 0B1
        device 1 | 1F0 1B0 1B1 1F1
                           ^^^ <-- this is wrong

What does not fit is cut: a grid behind its last whole mini-batch that fits, or else at the edge, with a line that says how wide
all of it is; a marked grid around what is wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

import numpy as np

from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.ir.program import Program

GAP = "..."
"""Stands for what is left out."""

_SMALLEST = 3
"""Characters of the smallest cell: letter, digit, space."""

MOST_DEVICES = 24
"""A marked grid shows at most so many devices, those around the culprit."""

_NO_SLOT = (Kind.UPDATE, Kind.PREDICT, Kind.TRANSFER, Kind.REDUCE, Kind.GATHER, Kind.RELEASE)


def grid(what: Program | TaskGraph, *, width: int | None = None) -> str:
    """Return a grid of at most `width` columns of text, the terminal's if not given; long ones are cut at the end.

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
    count, shown = max(map(len, table)), _capacity(names, size, width)
    note = [] if shown >= count else [_cut(f"actions 0 to {shown - 1} of {count}", len(names[0]) + 3 + size * count)]
    return "\n".join([*_lines(names, [row[:shown] for row in table], size), *note])


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
    # the slot of an action is its start if all take 1 second and what takes no slot takes none
    slot = np.where(takes_slot, evaluate(graph, TaskTimes(takes_slot.astype(np.float64))).start, -1).astype(np.int64)
    predicted, updated = _predicted(graph), _updated(graph, takes_slot)
    names = _names(program, full=full)
    # of a long run only cells that could fit are made into text
    count, most = int(slot.max()) + 1, _capacity(names, _SMALLEST, width)
    marks = max(bool(predicted.any()) + bool(updated.any()), 1)  # a mark may stand for the space
    texts = {task: _task_text(graph, task, full=full) for task in np.flatnonzero(takes_slot & (slot < most)).tolist()}
    shown, size = _fitting({task: len(text) + marks for task, text in texts.items()}, slot, width - len(names[0]) - 3)
    ends = _mini_batch_ends(graph, slot)
    note = []
    if shown < count:
        # whole mini-batches where one fits
        shown = int(ends[ends <= shown].max(initial=0)) or shown
        whole = (ends <= shown).sum()
        part = f"slots 0 to {shown - 1} of {count}" + (f", {whole} of {len(ends)} mini-batches" if whole else "")
        note = [_cut(part, len(names[0]) + 3 + (_cell_size(graph, full=full) + marks) * count)]
    cells = [["."] * shown for _ in names]
    for task, text in texts.items():
        if slot[task] < shown:
            marked = text + "^" * bool(predicted[task]) + "*" * bool(updated[task])
            cells[int(graph.device[task])][int(slot[task])] = marked
    legend = [". idle, every action takes one slot"]
    legend += ["* an update stands behind it"] * bool(updated.any()) + ["^ reads predicted weights"] * bool(predicted.any())
    return "\n".join([*_lines(names, cells, size), *note, "   ".join(legend)])


def _fitting(sizes: Mapping[int, int], slot: Ints, room: int) -> tuple[int, int]:
    """Return how many slots fit into `room` characters, at least 3, and how wide each is; `sizes` are those of tasks by number."""
    widths = np.zeros(int(slot[list(sizes)].max()) + 1, np.int64)
    for task, size in sizes.items():
        widths[slot[task]] = max(widths[slot[task]], size)
    # n slots take n times the widest of them, which only grows with n: as many fit as there are such n
    widths = np.maximum.accumulate(widths)
    shown = min(max(int((widths * np.arange(1, len(widths) + 1) <= room).sum()), 3), len(widths))
    return shown, int(widths[shown - 1])


def _mini_batch_ends(graph: TaskGraph, slot: Ints) -> Ints:
    """Return how many slots pass until every action of each mini-batch has run."""
    ends = np.zeros(graph.program.num_mini_batches, np.int64)
    runs = slot >= 0
    np.maximum.at(ends, graph.micro_batch[runs] // graph.program.num_micro_batches, slot[runs] + 1)
    return np.maximum.accumulate(ends)


def _cut(part: str, width: int) -> str:
    """Return the line that says which part is shown, and how wide all of it is."""
    return f"cut: {part}; to see all of it, type COLUMNS={width} in front of the command"


def _predicted(graph: TaskGraph) -> Ints:
    """bool per task: it reads predicted weights."""
    predicted = graph.predicted_by >= 0
    predicted[graph.pairs.task[graph.pairs.predicted_by >= 0]] = True
    return predicted


def _updated(graph: TaskGraph, takes_slot: Ints) -> Ints:
    """bool per task: it takes a slot and the next thing on its device is an update."""
    # by task the nearest at or before it that takes a slot: an update's mark goes there
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
