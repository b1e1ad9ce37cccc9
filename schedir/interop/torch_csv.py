"""Orders as torch.distributed.pipelining writes them in CSV: compute-only, one row for each device, one cell for each action.

    0F0,0F1,,0B0,,0B1        an empty cell is idle time of torch's own dry run; what idles follows from the graph here, so empty
    1F0,1B0,1F1,1B1          cells are skipped and none is written

There is no header: the shape follows from the cells unless it is given. Updates and recomputations, which torch does not have,
are left out when writing. torch reads such a file with `_PipelineScheduleRuntime._load_csv(file, format="compute_only")`.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

import numpy as np

from schedir.errors import FormatError
from schedir.ir.action import Kind
from schedir.ir.cells import Orders
from schedir.ir.header import Header
from schedir.ir.program import Origin, Pairs, Program, frozen_array
from schedir.ir.text import print_orders

COMMUNICATION = ("SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD")
"""Types of the other dialect, in which torch writes a schedule after lowering."""

_COMMUNICATION = re.compile(rf"[0-9]+(?:{'|'.join(COMMUNICATION)})[0-9]*")


def parse_torch_csv(text: str, header: Header, file: str = "") -> Program:
    """Return the program of a compute-only CSV; raise FormatError with line, device and cell of what is wrong."""
    rows = _read_rows(text, file)
    orders = Orders(lambda device, number: f"{rows[device].place}device {device}: cell {rows[device].columns[number]}: ")
    for device, row in enumerate(rows):
        sends = next((n for n, cell in enumerate(row.cells) if _COMMUNICATION.fullmatch(cell)), None)
        if sends is not None:
            raise FormatError(
                f"{row.place}device {device}: cell {row.columns[sends]}: {row.cells[sends]!r} is communication, which compiling "
                "adds: give the compute-only form (F, B, I, W and OVERLAP_F_B)"
            )
        orders.add(row.cells)
    origin = Origin(file, tuple(row.line for row in rows)) if file else None
    return orders.program(header, origin)


def print_torch_csv(program: Program) -> str:
    """Return a program as compute-only CSV, each row with a newline at its end."""
    return "".join(f"{cells.replace(' ', ',')}\n" for cells in print_orders(_without_placed(program)))


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    line: int
    cells: list[str]
    columns: list[int]
    """1-based column of each cell."""


def _read_rows(text: str, file: str) -> list[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[_Row] = []
    try:
        for row in reader:
            filled = [(cell.strip(), column) for column, cell in enumerate(row, start=1) if cell.strip()]
            place = f"{file}:{reader.line_num}: " if file else f"line {reader.line_num}: "
            rows.append(_Row(place, reader.line_num, [cell for cell, _ in filled], [column for _, column in filled]))
    except csv.Error as error:
        raise FormatError(f"{file}:{reader.line_num}: this is no CSV: {error}") from None
    while rows and not rows[-1].cells:
        rows.pop()
    if not rows:
        raise FormatError(f"{file or 'the text'} has no actions: one row of cells like 0F0 is needed for each device")
    return rows


def _without_placed(program: Program) -> Program:
    """Return a program without the updates and recomputations that it places itself."""
    keep = (program.kind != Kind.UPDATE) & (program.kind != Kind.RECOMPUTE)
    if keep.all():
        return program
    kept = np.concatenate(([0], np.cumsum(keep)))
    pairs = program.pairs
    return Program(
        name=program.name,
        num_stages=program.num_stages,
        num_devices=program.num_devices,
        num_micro_batches=program.num_micro_batches,
        num_mini_batches=program.num_mini_batches,
        weights=program.weights,
        device_start=frozen_array(kept[program.device_start], np.int64),
        kind=frozen_array(program.kind[keep], np.int8),
        stage=frozen_array(program.stage[keep], np.int32),
        micro_batch=frozen_array(program.micro_batch[keep], np.int32),
        pairs=Pairs.of(kept[pairs.row], kind=pairs.kind, stage=pairs.stage, micro_batch=pairs.micro_batch),
    )
