"""Programs as text, in the form that `text` reads again; the keys stand in `header`."""

from __future__ import annotations

from collections.abc import Iterator

from schedir.ir.action import Kind
from schedir.ir.notation.header import print_header
from schedir.ir.program_data import ProgramData

_LETTERS = [kind.letter for kind in Kind]


def print_program(program: ProgramData) -> str:
    """Return the text of a program, without a newline at its end."""
    orders = (f"device {device}: {cells}".rstrip() for device, cells in enumerate(print_orders(program)))
    return "\n".join((*print_header(program), *orders))


def print_orders(program: ProgramData) -> Iterator[str]:
    """Yield the cells of each device, separated by spaces."""
    for device in range(program.num_devices):
        rows = slice(int(program.device_start[device]), int(program.device_start[device + 1]))
        kinds = program.kind[rows]
        if (kinds == Kind.OVERLAPPED).any():
            yield " ".join(map(str, program.order(device)))
            continue
        # straight from the columns: an `Action` for every cell would be thrown away again
        columns = zip(program.stage[rows].tolist(), kinds.tolist(), program.micro_batch[rows].tolist(), strict=True)
        yield " ".join([f"{stage}{_LETTERS[kind]}{micro_batch}" for stage, kind, micro_batch in columns])
