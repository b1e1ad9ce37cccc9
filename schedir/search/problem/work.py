"""Pieces of work as numbers, orders as lists of them, and the way from there to programs and back.

    number = (kind x stages + stage) x micro-batches + micro-batch

Within an order the micro-batches of a stage take turns: forwards, backwards and weight gradients each run 0, 1, 2, … Where
micro-batches are alike that costs nothing: whatever order there is, number the k-th forward (backward, weight gradient) of
every stage k, and everything that waited for the k-th still waits for the k-th or for less.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind, Overlapped
from schedir.ir.entries import Entries
from schedir.ir.program import Program

KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)
"""What an order consists of: kind k stands in place k."""

Order = list[int]
"""What one device runs."""
Letter = tuple[Kind, int]
"""(kind, stage): a piece of work whose micro-batch follows from its turn."""


@dataclass(frozen=True, slots=True)
class Numbering:
    """From (kind, stage, micro-batch) to numbers and back."""

    num_stages: int
    num_micro_batches: int

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return len(KINDS) * self.num_stages * self.num_micro_batches

    def of(self, kind: Kind, stage: int, micro_batch: int) -> int:
        """Return the number of a piece of work."""
        return (kind * self.num_stages + stage) * self.num_micro_batches + micro_batch

    def work(self, number: int) -> tuple[Kind, int, int]:
        """Return (kind, stage, micro-batch) of a number."""
        rest, micro_batch = divmod(number, self.num_micro_batches)
        kind, stage = divmod(rest, self.num_stages)
        return KINDS[kind], stage, micro_batch

    def in_turn(self, letters: Sequence[Letter]) -> Order:
        """Return the order of one device in which every stage takes its micro-batches in turn."""
        return [self.of(kind, stage, j) for kind, stage, j in _take_turns(letters)]


def _take_turns(letters: Sequence[Letter]) -> Iterator[tuple[Kind, int, int]]:
    turn: Counter[tuple[bool, int]] = Counter()
    late: dict[int, deque[int]] = {}
    for kind, stage in letters:
        if kind is Kind.WEIGHT_GRAD:
            yield kind, stage, late[stage].popleft()
            continue
        key = (kind is Kind.FORWARD, stage)
        if kind is Kind.INPUT_GRAD:
            # W takes the oldest micro-batch whose I has run: wholes among them leave gaps in the numbers
            late.setdefault(stage, deque()).append(turn[key])
        yield kind, stage, turn[key]
        turn[key] += 1


def letters_of(program: Program, device: int, kinds: frozenset[Kind]) -> list[Letter]:
    """Return what a device runs for mini-batch 0, pairs taken apart and backwards split or whole as `kinds` has them."""
    found: list[Letter] = []
    entries = program.order(device)
    for entry in entries[: len(entries) // program.num_mini_batches]:
        for action in (entry.forward, entry.backward) if isinstance(entry, Overlapped) else (entry,):
            found += _allowed(action.kind, action.stage, kinds)
    return found


def _allowed(kind: Kind, stage: int, kinds: frozenset[Kind]) -> list[Letter]:
    if kind in kinds:
        return [(kind, stage)]
    # where only halves may stand, B is both of them; where only wholes may, I is B and W falls away
    if kind is Kind.BACKWARD:
        return [(Kind.INPUT_GRAD, stage), (Kind.WEIGHT_GRAD, stage)]
    return [(Kind.BACKWARD, stage)] if kind is Kind.INPUT_GRAD else []


def program_of(orders: Sequence[Order], numbering: Numbering, *, name: str) -> Program:
    """Return the program of one mini-batch that runs these orders."""
    number = np.concatenate([np.array(order, np.int64) for order in orders])
    rest, micro_batch = np.divmod(number, numbering.num_micro_batches)
    kind, stage = np.divmod(rest, numbering.num_stages)
    return Program.from_entries(
        name,
        Entries((kind, stage, micro_batch), list(map(len, orders))),
        num_stages=numbering.num_stages,
        num_micro_batches=numbering.num_micro_batches,
    )


def base_program(homes: Sequence[int], num_micro_batches: int, *, split: bool) -> Program:
    """Return a valid program on this placement: all forwards, stage by stage, then all backwards, the last stage first."""
    stages = range(len(homes))
    backward = [Kind.INPUT_GRAD, Kind.WEIGHT_GRAD] if split else [Kind.BACKWARD]
    numbering = Numbering(len(homes), num_micro_batches)
    orders: list[Order] = [[] for _ in range(max(homes) + 1)]
    for stage in stages:
        orders[homes[stage]] += [numbering.of(Kind.FORWARD, stage, j) for j in range(num_micro_batches)]
    for stage in reversed(stages):
        orders[homes[stage]] += [numbering.of(kind, stage, j) for j in range(num_micro_batches) for kind in backward]
    return program_of(orders, numbering, name="search")


def sequential(homes: Sequence[int], num_micro_batches: int, *, split: bool) -> list[Order]:
    """Return the order that holds least: one micro-batch after the other, forward and back."""
    backward = [Kind.INPUT_GRAD, Kind.WEIGHT_GRAD] if split else [Kind.BACKWARD]
    numbering = Numbering(len(homes), num_micro_batches)
    orders: list[Order] = [[] for _ in range(max(homes) + 1)]
    for j in range(num_micro_batches):
        for stage, home in enumerate(homes):
            orders[home].append(numbering.of(Kind.FORWARD, stage, j))
        for stage in reversed(range(len(homes))):
            orders[homes[stage]] += [numbering.of(kind, stage, j) for kind in backward]
    return orders
