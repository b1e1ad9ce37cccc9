"""`schedir convert`: write a schedule in another program format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedir.cli.flags.flags import as_command, flag
from schedir.cli.flags.options import ScheduleOptions, ShapeOptions
from schedir.cli.flags.values import one_of, path
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.ir.program import Program

_FORMATS = ("text", "toml", "compute-only", "compute-comms")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOutput:
    """Output."""

    output: Path | None = flag("--output/-o", path, "FILE", "Where to write: .toml, .csv (as torch writes it) or .txt.")
    form: str | None = flag(
        "--format",
        one_of(*_FORMATS),
        "|".join(_FORMATS),
        "That of the file's suffix if not given, else text; .csv is compute-only, compute-comms has torch's sends and receives.",
    )


@as_command
def convert(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name, a file, or file.py:function.")],
    target: Annotated[str | None, typer.Argument(metavar="FILE", help="Where to write, as --output.")] = None,
    *,
    output: ConvertOutput,
    shape: ShapeOptions,
    options: ScheduleOptions,
) -> None:
    """Write a schedule as TOML, text, or CSV for torch.distributed.pipelining; without a file, show it so."""
    from schedir.cli.flags.sources import read_program
    from schedir.cli.screen.progress import Underway
    from schedir.cli.screen.screen import shape_text
    from schedir.interop.program_files import Form, form_of, print_form, save_program
    from schedir.workflows.files import make_parents

    where = _where(target, output.output)
    if where is None:
        form = Form(output.form or Form.TEXT)
        with Underway(f"builds {schedule}"):
            program = read_program(schedule, shape, options)
            _prove(program, form)
            text = print_form(program, form)
        print(text, end="")
        return
    with Underway(f"builds {schedule}"):
        program = read_program(schedule, shape, options)
        form = form_of(where, output.form)
        _prove(program, form)
        make_parents(where)
        save_program(program, where, form=form)
    print(f"wrote {where}: {shape_text(program)}")
    if form.suffix == ".csv":
        _print_left_out(program)


def _where(target: str | None, output: Path | None) -> Path | None:
    if target is not None and output is not None:
        raise ArgumentError(f"--output {output}: {target} is given as well: leave one of them out")
    return output if target is None else path(target)


def _prove(program: Program, form: str) -> None:
    """Explain an invalid program as `check` does, with the grid, before it is written for torch."""
    from schedir.compiler import compile_program
    from schedir.interop.torch_limits import check_torch_runs

    if form in {"compute-only", "compute-comms"}:
        check_torch_runs(program)
        compile_program(program)


def _print_left_out(program: Program) -> None:
    """Say which of the actions are not in the file."""
    from schedir.ir.action import Kind

    for kind, instead in (
        (Kind.UPDATE, "call the optimizers after every step"),
        (Kind.RECOMPUTE, "use torch.utils.checkpoint in the stages"),
    ):
        count = int((program.kind == kind).sum())
        if count:
            print(f"note: PyTorch's pipelining has no {kind.word}, so {count} {kind.letter} are left out: {instead}")
