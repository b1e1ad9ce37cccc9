"""A program that flushes, repeated: mini-batch after mini-batch in the same orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from schedir.errors import ArgumentError
from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.pairs import Pairs
from schedir.ir.program import Program


def is_repeatable(program: Program, num_mini_batches: int) -> bool:
    """Tell whether a program that flushes makes so many mini-batches if it is run several times."""
    return program.weights.synchronous and num_mini_batches % program.num_mini_batches == 0


def repeat_program(program: Program, num_mini_batches: int) -> Program:
    """Return the program of so many mini-batches; raise ArgumentError where that is no repetition of a program that flushes."""
    if not is_repeatable(program, num_mini_batches):
        raise ArgumentError(
            f"{program.name} has {program.num_mini_batches} mini-batches and weights {program.weights.rule.value}, so it cannot be "
            f"repeated to {num_mini_batches}: only programs that flush repeat, and whole times"
        )
    times = num_mini_batches // program.num_mini_batches
    if times == 1:
        return program
    row, time = _rows(program, times)
    shift = time * program.total_micro_batches
    pair_row, pair, pair_shift = _pairs(program, times)
    return replace(
        program,
        num_mini_batches=num_mini_batches,
        device_start=frozen_array(program.device_start * times, np.int64),
        kind=frozen_array(program.kind[row], np.int8),
        stage=frozen_array(program.stage[row], np.int32),
        micro_batch=frozen_array(program.micro_batch[row] + shift, np.int32),
        pairs=Pairs.of(
            pair_row,
            kind=program.pairs.kind[pair],
            stage=program.pairs.stage[pair],
            micro_batch=program.pairs.micro_batch[pair] + pair_shift,
        ),
    )


def _rows(program: Program, times: int) -> tuple[Ints, Ints]:
    """Return for every new entry the old one and the number of the repetition."""
    #   entries 0 1 2 of device 0 and 3 4 of device 1, twice:    0 1 2 0 1 2   3 4 3 4
    #   number of the repetition:                                0 0 0 1 1 1   0 0 1 1
    lengths = np.diff(program.device_start)
    again = np.concatenate([np.tile(np.arange(length), times) for length in lengths])
    time = np.concatenate([np.repeat(np.arange(times), length) for length in lengths])
    return again + np.repeat(program.device_start[:-1], lengths * times), time


def _pairs(program: Program, times: int) -> tuple[Ints, Ints, Ints]:
    """Return for every new pair its entry, the old pair, and what its micro-batch is moved by."""
    old = program.pairs.row
    device = np.searchsorted(program.device_start, old, side="right") - 1
    start = program.device_start[device]
    length = program.device_start[device + 1] - start
    time = np.arange(times)[:, None]
    rows = (start * times + time * length + old - start).ravel()
    # raveled they stand repetition by repetition; a program has them by entry, device after device
    order = np.argsort(rows)
    pair, shift = np.tile(np.arange(len(old)), times), np.repeat(np.arange(times), len(old)) * program.total_micro_batches
    return rows[order], pair[order], shift[order]
