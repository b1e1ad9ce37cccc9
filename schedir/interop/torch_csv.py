"""Orders as torch.distributed.pipelining writes them in CSV: one row for each device, one cell for each action, no header.

    0F0,0F1,,0B0,,0B1        compute-only: an empty cell is idle time of torch's own dry run; what idles follows from the graph
    1F0,1B0,1F1,1B1          here, so empty cells are skipped and none is written

    0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD        with communication: the form after torch's lowering; compiling places transfers
    1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD        itself, so they are proved (`torch_communication`) and dropped

The shape follows from the cells unless it is given. torch reads such a file with `_PipelineScheduleRuntime._load_csv(file,
format="compute_only")`, or `"compute_comms"`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from schedir.errors import FormatError
from schedir.interop.torch_cells import FIRST_WORD, fault_of, split_cells
from schedir.interop.torch_communication import check_communication
from schedir.interop.torch_communications import Communications, DeviceCells
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.checks.action_table import actions_of
from schedir.ir.notation.cells import LETTERS, Orders
from schedir.ir.notation.header import Header
from schedir.ir.notation.printing import print_orders
from schedir.ir.origin import Origin
from schedir.ir.pairs import Pairs
from schedir.ir.program import Program

_PLAIN = re.compile(f"(?:[0-9]{{1,9}}[{LETTERS}][0-9]{{1,9}} )*")


def parse_torch_csv(text: str, header: Header, file: str = "") -> Program:
    """Return the program of a CSV of either form; raise FormatError with line, device and cell of what is wrong.

    Of a file with communication every fault is an error that torch would run with: receives in another order than the sends,
    gradients that are not divided, computation before its receive. It must be a whole program; its verification raises
    ProgramError.
    """
    rows = _read_rows(text, file)
    computing = [_computing(row, device) for device, row in enumerate(rows)]
    orders = Orders(lambda device, number: f"{rows[device].place}device {device}: cell {computing[device].columns[number]}: ")
    for each in computing:
        orders.add(each.cells)
    origin = Origin(file, tuple(row.line for row in rows)) if file else None
    program = _program(orders, header, origin)
    communications = Communications.of(
        [each.communication for each in computing],
        lambda device, column: f"{rows[device].place}device {device}: cell {column}: ",
    )
    if len(communications):
        check_communication(program, communications)
    return program


def print_torch_csv(program: Program) -> str:
    """Return a program as compute-only CSV, each row with a newline at its end; U and R, which torch lacks, are left out."""
    return "".join(f"{cells.replace(' ', ',')}\n" for cells in print_orders(without_placed(program)))


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    line: int
    cells: list[str]
    columns: Sequence[int]
    """1-based column of each cell."""

    def numbered(self) -> Iterator[tuple[str, int]]:
        """Yield each cell with its column."""
        return zip(self.cells, self.columns, strict=True)


@dataclass(frozen=True, slots=True)
class _Computing:
    """The actions of a row, and apart from them its communication."""

    cells: list[str]
    columns: Sequence[int]
    communication: DeviceCells


def _read_rows(text: str, file: str) -> list[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[_Row] = []
    try:
        for row in reader:
            cells: list[str] = list(map(str.strip, row))
            columns: Sequence[int] = range(1, len(cells) + 1)
            if "" in cells:
                columns = list(compress(columns, cells))
                cells = list(filter(None, cells))
            place = f"{file}:{reader.line_num}: " if file else f"line {reader.line_num}: "
            rows.append(_Row(place, reader.line_num, cells, columns))
    except csv.Error as error:
        raise FormatError(f"{file}:{reader.line_num}: this is no CSV: {error}") from None
    while rows and not rows[-1].cells:
        rows.pop()
    if not rows:
        raise FormatError(f"{file or 'the text'} has no actions: one row of cells like 0F0 is needed for each device")
    return rows


def _computing(row: _Row, device: int) -> _Computing:
    """Tell actions from communication; raise FormatError for a cell that is neither."""
    if _PLAIN.fullmatch(f"{' '.join(row.cells)} "):
        return _Computing(row.cells, row.columns, DeviceCells.none())
    found = split_cells(row.cells) or _one_by_one(row, device)
    what, stage, micro_batch = found
    is_action = what < FIRST_WORD
    talk = np.flatnonzero(~is_action)
    columns = np.array(row.columns)
    return _Computing(
        list(compress(row.cells, is_action.tolist())),
        columns[is_action].tolist(),
        DeviceCells(
            what=what[talk] - FIRST_WORD,
            stages=stage[talk],
            micro_batches=micro_batch[talk],
            computed=np.cumsum(is_action)[talk],
            columns=columns[talk],
        ),
    )


def _one_by_one(row: _Row, device: int) -> tuple[Ints, Ints, Ints]:
    """Split the cells of a row with pairs, which are judged where actions are read; raise FormatError for a wrong cell."""
    parts = []
    for cell, column in row.numbered():
        found = split_cells([cell])
        if found is None and not cell.startswith("("):
            raise FormatError(f"{row.place}device {device}: cell {column}: {fault_of(cell)}")
        parts.append((0, 0, 0) if found is None else [int(each[0]) for each in found])
    what, stage, micro_batch = np.array(parts, np.int64).reshape(-1, 3).T
    return what, stage, micro_batch


def _program(orders: Orders, header: Header, origin: Origin | None) -> Program:
    try:
        program = orders.program(header, origin)
    except FormatError:
        loose = replace(header, num_stages=None, num_micro_batches=None, num_mini_batches=None)
        _check_numbers(orders.program(loose, origin))
        raise
    _check_numbers(program)
    _check_count(program, header)
    return program


def _check_numbers(program: Program) -> None:
    """Refuse forwards that are numbered 1..m beside backwards 0..m - 1, as torch's `Schedule1F1B.pipeline_order` has them."""
    kind, key, row = actions_of(program)
    stage, j = np.divmod(key, program.total_micro_batches)
    forward, backward = kind == Kind.FORWARD, np.isin(kind, (Kind.BACKWARD, Kind.INPUT_GRAD))
    missing = np.setdiff1d(stage[forward], stage[forward & (j == 0)])
    for number in missing.tolist():
        forwards, backwards = np.sort(j[forward & (stage == number)]), np.sort(j[backward & (stage == number)])
        if np.array_equal(forwards, backwards + 1):
            device = int(program.device_of_entry()[row[forward & (stage == number)][0]])
            place = "" if program.origin is None else program.origin.place(device)
            raise FormatError(
                f"{place}device {device}: stage {number} numbers its forwards 1..{forwards[-1]}, but its backwards "
                f"0..{backwards[-1]}, as torch's Schedule1F1B.pipeline_order does by mistake: number the forwards from 0"
            )


def _check_count(program: Program, header: Header) -> None:
    """Refuse counts that are given beside a file with another number of micro-batches."""
    written = max(int(program.micro_batch.max(initial=-1)), int(program.pairs.micro_batch.max(initial=-1))) + 1
    given = header.num_micro_batches is not None or header.num_mini_batches is not None
    if given and written != program.total_micro_batches:
        place = "" if program.origin is None else program.origin.place()
        raise FormatError(
            f"{place}micro-batches 0..{written - 1} are written, {written} in all, but {program.num_mini_batches} x "
            f"{program.num_micro_batches} are asked for (mini-batches x micro-batches): give numbers that multiply to {written}"
        )


def without_placed(program: Program) -> Program:
    """Return a program without the updates and recomputations that it places itself."""
    keep = (program.kind != Kind.UPDATE) & (program.kind != Kind.RECOMPUTE)
    if keep.all():
        return program
    kept = np.concatenate(([0], np.cumsum(keep)))
    pairs = program.pairs
    return replace(
        program,
        device_start=frozen_array(kept[program.device_start], np.int64),
        kind=frozen_array(program.kind[keep], np.int8),
        stage=frozen_array(program.stage[keep], np.int32),
        micro_batch=frozen_array(program.micro_batch[keep], np.int32),
        pairs=Pairs.of(kept[pairs.row], kind=pairs.kind, stage=pairs.stage, micro_batch=pairs.micro_batch),
    )
