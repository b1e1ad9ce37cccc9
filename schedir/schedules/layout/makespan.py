"""How long a program of F, I and W takes under the times of a cost model, before it is compiled.

The sums are those of the compiled graph in order, U behind the last W of each mini-batch included, so that a schedule can
promise that the order it chose is no longer than another.
"""

from __future__ import annotations

import numpy as np

from schedir.costs.work_times import WorkTimes
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.program import Program

NOTHING = -1


def makespan(program: Program, times: WorkTimes) -> float:
    """Return the last end in seconds. Every stage is on one device, every backward is split, and the order does not block."""
    kind, stage, micro_batch, device = _with_updates(program)
    seconds = times.of((kind, stage, micro_batch), num_micro_batches=program.num_micro_batches)
    need, result = _needs(program, (kind, stage, micro_batch))
    home = np.empty(program.num_stages, np.int64)
    home[stage] = device
    giver = np.where(need == NOTHING, 0, need // program.total_micro_batches % program.num_stages)
    # between two stages of one device nothing travels
    latency = np.where((need != NOTHING) & (home[giver] != device), times.transfer[giver], 0.0)
    starts = np.searchsorted(device, np.arange(program.num_devices + 1)).tolist()
    return _Walk(need.tolist(), result.tolist(), (seconds.tolist(), latency.tolist(), times.gaps(seconds).tolist())).last_end(
        starts
    )


def _with_updates(program: Program) -> tuple[Ints, Ints, Ints, Ints]:
    """Return (kind, stage, micro-batch, device) with U right behind the last W of its stage and mini-batch."""
    kind, stage, micro_batch = (column.astype(np.int64) for column in (program.kind, program.stage, program.micro_batch))
    device = program.device_of_entry().astype(np.int64)
    weight_grads = np.flatnonzero(kind == Kind.WEIGHT_GRAD)
    key = micro_batch[weight_grads] // program.num_micro_batches * program.num_stages + stage[weight_grads]
    last = np.zeros(program.num_stages * program.num_mini_batches, np.int64)
    np.maximum.at(last, key, weight_grads)
    row = np.sort(last)
    columns = (kind, stage, micro_batch, device)
    # a copy of each last W behind it, with its stage and micro-batch, then called U; each stands as many rows further down as
    # there are copies before it
    with_updates = [np.insert(column, row + 1, column[row]) for column in columns]
    with_updates[0][row + 1 + np.arange(len(row))] = Kind.UPDATE
    return with_updates[0], with_updates[1], with_updates[2], with_updates[3]


def _needs(program: Program, work: tuple[Ints, Ints, Ints]) -> tuple[Ints, Ints]:
    """Return for each piece of work the number of the result that it waits for, and that of its own; -1 where there is none.

    Results are numbered 0, 1, … first the outputs, then the input gradients, by stage and micro-batch.
    """
    kind, stage, micro_batch = work
    total, last = program.total_micro_batches, program.num_stages - 1
    output = stage * total + micro_batch
    gradient = (program.num_stages + stage) * total + micro_batch
    forward, backward = kind == Kind.FORWARD, kind == Kind.INPUT_GRAD
    result = np.where(forward, output, np.where(backward, gradient, NOTHING))
    need = np.where(forward & (stage > 0), output - total, NOTHING)
    return np.where(backward, np.where(stage == last, output, gradient + total), need), result


class _Walk:
    """Runs every device as far as it goes without a result that is not there yet, then those that waited for it."""

    def __init__(self, need: list[int], result: list[int], times: tuple[list[float], list[float], list[float]]) -> None:
        self._need, self._result = need, result
        self._duration, self._latency, self._gap = times
        self._end: dict[int, float] = {}
        self._waiting: dict[int, int] = {}

    def last_end(self, starts: list[int]) -> float:
        """Return the end of the last work; device d runs rows starts[d] … starts[d + 1]."""
        at, free = starts[:-1], [0.0] * (len(starts) - 1)
        ready = list(range(len(free)))
        while ready:
            device = ready.pop()
            row, end = at[device], starts[device + 1]
            while row < end and (start := self._seen(row, free[device])) is not None:
                free[device] = start + self._gap[row] + self._duration[row]
                ready += self._hand_over(row, free[device])
                row += 1
            at[device] = row
            if row < end:
                self._waiting[self._need[row]] = device
        assert not self._waiting, "the order blocks"
        return max(free)

    def _seen(self, row: int, free: float) -> float | None:
        """Return when a row can start, or None if what it needs is not there."""
        need = self._need[row]
        if need == NOTHING:
            return free
        end = self._end.get(need)
        return None if end is None else max(free, end + self._latency[row])

    def _hand_over(self, row: int, end: float) -> list[int]:
        """Note when a row's result is there; return the device that waits for it, if one does."""
        result = self._result[row]
        if result == NOTHING:
            return []
        self._end[result] = end
        return [self._waiting.pop(result)] if result in self._waiting else []
