"""Go on for ever with a graph of a few mini-batches: its steps, behind the start-up, come again with higher numbers.

A schedule under a flush is the same every mini-batch. A continuous one is the same every `period` mini-batches, once all devices
are busy (with 1F1B-RR the period is the least common multiple of the replica counts). That is not believed but looked at: the
steps of a program with some mini-batches to spare are compared, every action with what it reads, and who reads it last. So a
trainer holds a program whose size depends on devices and micro-batches, not on how long it trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from executor.plan.steps import Move, StepTable
from schedir.errors import RefusedError
from schedir.ir.graph import TaskGraph

Build = Callable[[int], TaskGraph]
"""Number of mini-batches -> the compiled schedule."""


class Endless:
    """The steps of one schedule, as many as anybody wants."""

    def __init__(self, table: StepTable, build: Build, *, start_up: int, period: int, depth: int = 0) -> None:
        self.table = table
        self.start_up = start_up
        """Steps that come once; those behind them come again after `period` steps."""
        self.period = period
        self.block = table.largest_step
        self._build = build
        self._reach = max(depth, table.graph.program.num_devices)
        """Mini-batches that a drain may still be about."""
        self._drained: dict[int, StepTable] = {}

    @classmethod
    def synchronous(cls, graph: TaskGraph) -> Endless:
        """Repeat a graph that flushes, all its mini-batches one after the other."""
        assert graph.program.weights.synchronous
        return cls(StepTable.of(graph), lambda _: graph, start_up=0, period=graph.program.num_mini_batches)

    @classmethod
    def continuous(cls, build: Build, *, depth: int, period: int) -> Endless:
        """Find out how a continuous schedule repeats.

        `depth` is how many mini-batches may be under way at once if no devices take turns, `period` after how many it should
        repeat. Raises RefusedError for a program that does not.
        """
        # room for a start-up, which takes a few depths, and for enough periods behind it to see that they are alike
        settled = 5 * depth + 4 * period + 4
        # What the last steps read, and who reads it last, is not settled: the next mini-batches are missing.
        graph = build(settled + 2 * depth + 3 * period)
        table = StepTable.of(graph)
        start_up = _settles(table, period=period, settled=settled)
        if start_up is None:
            raise RefusedError(
                f"{graph.program.name} does not repeat itself every {_mini_batches(period)}, so it cannot go on without end: train "
                "it with schedir.train, over as many mini-batches as it has"
            )
        return cls(table, build, start_up=start_up, period=period, depth=depth)

    def locate(self, step: int) -> tuple[StepTable, int, Move]:
        """Return where a step stands: a table, its number there, and how far it is moved."""
        if step < self.start_up:
            return self.table, step, Move(0, self.block)
        place = self.start_up + (step - self.start_up) % self.period
        return self.table, place, Move(step - place, self.block)

    def drain(self, num_steps: int) -> tuple[StepTable, int, Move]:
        """Return where the drain behind so many steps stands."""
        size = self._size_like(num_steps)
        if size not in self._drained:
            self._drained[size] = StepTable.of(self._build(size))
        return self._drained[size], size, Move(num_steps - size, self.block)

    def window(self, num_steps: int, most: int) -> tuple[StepTable, int, Move]:
        """Return a table for the last steps of so many, at most `most` where there are more, and how far it is moved.

        The number is the table's first step that is among them.
        """
        size = self._size_like(num_steps, most)
        if size not in self._drained:
            self._drained[size] = StepTable.of(self._build(size))
        return self._drained[size], max(0, size - most), Move(num_steps - size, self.block)

    def _size_like(self, num_steps: int, least: int = 0) -> int:
        """Return the fewest mini-batches, at least those of the start-up and `least`, that end as `num_steps` do."""
        settled = max(self.start_up + self._reach, least) + self.period
        return num_steps if num_steps <= settled else settled + (num_steps - settled) % self.period


def _settles(table: StepTable, *, period: int, settled: int) -> int | None:
    """Return the first step from which on all, up to step `settled`, come again after `period` steps; None if too few do."""
    start = settled
    while start and _comes_again(table, start - 1, period):
        start -= 1
    # a third of the steps and a period more: a shorter row of repetitions may be chance
    return start if settled - start > settled // 3 + period else None


def _comes_again(table: StepTable, step: int, period: int) -> bool:
    """Tell whether a step, moved by `period`, is the step that stands there: the same actions that read the same."""
    here, there = Move(period, table.largest_step), Move(0, table.largest_step)
    pairs = zip(table.device_tasks[step], table.device_tasks[step + period], strict=True)
    return all(_moved_tasks(table, first, here) == _moved_tasks(table, second, there) for first, second in pairs)


def _moved_tasks(table: StepTable, tasks: tuple[int, ...], move: Move) -> list[tuple[object, ...]]:
    return [tuple(table.moved(action, move) for action in table.plan.tasks[task]) for task in tasks]


def depth_of(graph: TaskGraph) -> int:
    """Return how many mini-batches a continuous graph may have under way at once: those of its devices' forwards."""
    program = graph.program
    if period_of(graph) > 1:
        return program.num_devices  # 1F1B-RR takes whole mini-batches in turn
    return -(-program.num_devices // program.num_micro_batches)


def period_of(graph: TaskGraph) -> int:
    """Return after how many mini-batches every replica has had as many."""
    return math.lcm(*np.asarray(graph.round_size).tolist())


def _mini_batches(count: int) -> str:
    return "mini-batch" if count == 1 else f"{count} mini-batches"
