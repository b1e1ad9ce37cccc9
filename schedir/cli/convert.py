"""`schedir convert`: write a schedule in another program format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from schedir.cli.flags import as_command, flag
from schedir.cli.options import ScheduleOptions, ShapeOptions
from schedir.cli.values import path
from schedir.errors import ArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOutput:
    """Output."""

    output: Path | None = flag("--output/-o", path, "FILE", "Where to write: .toml, .csv (as torch writes it) or .txt.")


@as_command
def convert(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A schedule's name, a file, or file.py:function.")],
    *,
    output: ConvertOutput,
    shape: ShapeOptions,
    options: ScheduleOptions,
) -> None:
    """Write a schedule's orders to a program file (TOML, text, or CSV for torch.distributed.pipelining); the suffix decides."""
    from schedir.cli.sources import read_program
    from schedir.compiler import save_program
    from schedir.workflows.files import make_parents

    program = read_program(schedule, shape, options)
    if output.output is None:
        print(program)
        return
    as_csv = output.output.suffix.lower() == ".csv"
    if as_csv and not program.weights.synchronous:
        raise ArgumentError(
            f"--output {output.output}: CSV has no place for mini-batches, the rule {program.weights.rule.value} or replicas, "
            f"which {program.name} needs: end its name with .toml or .txt"
        )
    make_parents(output.output)
    save_program(program, output.output)
    print(f"wrote {output.output}: {program!r}")
    if as_csv and program.num_mini_batches > 1:
        print(f"note: CSV has no place for mini-batches: give --mini-batches {program.num_mini_batches} where you read it")
