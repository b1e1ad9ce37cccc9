"""The schedules that stand side by side, and their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schedir.cli.compare.options import CompareShape
from schedir.cli.flags.options import ScheduleOptions, ShapeOptions
from schedir.cli.flags.sources import read_program
from schedir.cli.screen.screen import counted
from schedir.errors import ArgumentError
from schedir.interop.program_files import SUFFIXES
from schedir.ir.program import Program
from schedir.ir.repetition import is_repeatable, repeat_program


class Sides:
    """Schedules that stand side by side, not built yet; those of files keep their own shape, others stand beside it."""

    def __init__(
        self,
        sources: Sequence[str],
        shapes: Sequence[ShapeOptions],
        options: Sequence[ScheduleOptions],
        *,
        defaults: ShapeOptions | None = None,
    ) -> None:
        """Take what was given for each; without a file, `defaults` fills in what was not.

        A file that flushes is repeated for as many mini-batches as the defaults have.
        """
        self._given = list(zip(sources, shapes, options, strict=True))
        self._files = {
            source: _long_enough(read_program(source, shape, options), shape, defaults)
            for source, shape, options in self._given
            if source.endswith(SUFFIXES)
        }
        first = next(iter(self._files.values()), None)
        beside = _shape_of(first) if first is not None else defaults or ShapeOptions()
        self._shapes = [shape if source in self._files else _filled(shape, beside) for source, shape, _ in self._given]

    def build(self, mini_batches: int | None = None) -> list[Program]:
        """Build all programs, those of no file with so many mini-batches (as given, or their own default)."""
        return [
            self._files[source]
            if source in self._files
            else read_program(source, replace(shape, mini_batches=mini_batches or shape.mini_batches), options)
            for (source, _, options), shape in zip(self._given, self._shapes, strict=True)
        ]

    def build_alike(self) -> list[Program]:
        """Build all with equally many mini-batches, enough to give each that has one its steady state."""
        return self.build(max(program.num_mini_batches for program in self.build()))


def _long_enough(program: Program, shape: ShapeOptions, defaults: ShapeOptions | None) -> Program:
    wanted = None if defaults is None or shape.mini_batches else defaults.mini_batches
    return repeat_program(program, wanted) if wanted and is_repeatable(program, wanted) else program


def _shape_of(program: Program) -> ShapeOptions:
    return ShapeOptions(devices=program.num_devices, micro_batches=program.num_micro_batches, mini_batches=program.num_mini_batches)


def _filled(shape: ShapeOptions, beside: ShapeOptions) -> ShapeOptions:
    return replace(
        shape,
        devices=shape.devices or beside.devices,
        micro_batches=shape.micro_batches or beside.micro_batches,
        mini_batches=shape.mini_batches or beside.mini_batches,
    )


def shapes_of(num_schedules: int, shape: CompareShape) -> list[ShapeOptions]:
    """Return the shape that was given for every schedule."""
    counts = shape.micro_batches or (None,)
    if len(counts) not in {1, num_schedules}:
        raise ArgumentError(
            f"--micro-batches has {len(counts)} values for {counted(num_schedules, 'schedule')}: "
            "give one value, or one per schedule"
        )
    return [
        ShapeOptions(
            devices=shape.devices,
            micro_batches=count,
            mini_batches=shape.mini_batches,
            stages_per_device=shape.stages_per_device,
        )
        for count in (counts * num_schedules if len(counts) == 1 else counts)
    ]
