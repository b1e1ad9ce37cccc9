"""The picture of a program for notebooks, and what stands in the bars of this and other pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.notation.svg import SvgBars, SvgFrame, bars_svg
from schedir.ir.pairs import PairReads, Pairs
from schedir.ir.program_data import ProgramData


def program_svg(program: ProgramData) -> str:
    """Draw the order of every device, one cell per entry."""
    device = program.device_of_entry()
    position = np.arange(program.num_entries) - program.device_start[device]
    lower = np.full(program.num_entries, -1)
    lower[program.pairs.row] = program.pairs.kind
    forward = np.where(program.kind == Kind.OVERLAPPED, np.int8(Kind.FORWARD), program.kind)
    names = BarTexts(
        program.kind,
        program.stage,
        program.micro_batch,
        backward=backward_texts(program.pairs.row, program.pairs),
        several=program.num_stages > program.num_devices,
    )
    bars = SvgBars(
        device,
        position.astype(np.float64),
        (position + 1).astype(np.float64),
        forward,
        names.of,
        lower if len(program.pairs) else None,
    )
    micro_batches = f"{program.num_mini_batches} x {program.num_micro_batches} micro-batches"
    title = (
        f"{program.name}: {program.num_devices} devices, {program.num_stages} stages, {micro_batches}, weights {program.weights}"
    )
    lanes = [f"device {number}" for number in range(program.num_devices)]
    return bars_svg(bars, SvgFrame(title, lanes, "position in the device's order", ["order only: cells are no durations"]))


@dataclass(frozen=True, slots=True, eq=False)
class BarTexts:
    """What may stand in a bar, longest first: `2F0`, `F0`, `F`; the stage only where devices host several."""

    kind: Ints
    stage: Ints
    micro_batch: Ints
    backward: Mapping[int, str]
    """By the bar's number: the backward half of an overlapped pair."""
    several: bool

    def of(self, index: int) -> tuple[str, ...]:
        """Return the texts of one bar."""
        kind, stage, micro_batch = int(self.kind[index]), int(self.stage[index]), int(self.micro_batch[index])
        if index in self.backward:
            forward = f"{stage}{Kind.FORWARD.letter}{micro_batch}"
            return f"{forward} {self.backward[index]}", forward
        letter = Kind(kind).letter
        full, short = f"{stage}{letter}{micro_batch}", f"{letter}{micro_batch}"
        return (full, short, letter) if self.several else (short, letter)


def backward_texts(at: Ints, pairs: Pairs | PairReads) -> dict[int, str]:
    """Return the texts of backward halves by the number of their bar."""
    columns = (at.tolist(), pairs.stage.tolist(), pairs.kind.tolist(), pairs.micro_batch.tolist())
    return {bar: f"{stage}{Kind(kind).letter}{j}" for bar, stage, kind, j in zip(*columns, strict=True) if bar >= 0}
