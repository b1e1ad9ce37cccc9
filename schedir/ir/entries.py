"""The entries of a program as columns, device after device, from whichever form its orders are given in.

device 0   0F0 0F1 0B0 0B1        kind         F F B B F B F B
device 1   1F0 1B0 1F1 1B1        stage        0 0 0 0 1 1 1 1        lengths  4 4
                                  micro_batch  0 1 0 1 0 0 1 1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from schedir.ir.action import Entry, Kind, Overlapped
from schedir.ir.pairs import NO_PAIRS, Pairs

Columns = tuple[ArrayLike, ArrayLike, ArrayLike]
"""Kind, stage and micro-batch, equally long or to be broadcast."""


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Columns with one row per entry; of an overlapped entry its forward's, with the backward among the pairs."""

    columns: Columns
    lengths: ArrayLike
    """Entries of each device."""
    pairs: Pairs = NO_PAIRS

    @classmethod
    def of_arrays(cls, orders: Sequence[Columns]) -> Entries:
        """Take one triple of columns per device."""
        columns = [np.broadcast_arrays(*(np.atleast_1d(column) for column in order)) for order in orders]
        kind, stage, micro_batch = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return cls((kind, stage, micro_batch), [len(kinds) for kinds, _, _ in columns])

    @classmethod
    def of_matrix(cls, order: Columns, *, num_micro_batches: int, num_mini_batches: int) -> Entries:
        """Take matrices with a row per device; those that hold mini-batch 0 only are repeated for every other mini-batch."""
        kind, stage, micro_batch = (np.asarray(column) for column in order)
        shape = np.broadcast(kind, stage, micro_batch).shape
        num_devices, length = shape
        #   (devices, length) of mini-batch 0  ->  (devices, mini-batches, length), micro-batches moved on by m each time;
        #   laid out row by row that is device after device, each with its mini-batches one behind the other
        first = None
        if num_mini_batches > 1 and micro_batch.max() < num_micro_batches:
            first = num_micro_batches * np.arange(num_mini_batches, dtype=np.int32)[:, None]
            shape = (num_devices, num_mini_batches, length)
            length *= num_mini_batches
            kind, stage, micro_batch = (np.broadcast_to(column, shape[::2])[:, None, :] for column in (kind, stage, micro_batch))
        # written into arrays of the final types at once: a million entries are copied once only
        kinds, stages, micro_batches = (np.empty(shape, dtype) for dtype in (np.int8, np.int32, np.int32))
        kinds[...], stages[...] = kind, stage
        micro_batches[...] = micro_batch if first is None else micro_batch + first
        return cls((kinds.reshape(-1), stages.reshape(-1), micro_batches.reshape(-1)), np.full(num_devices, length))

    @classmethod
    def of_orders(cls, orders: Sequence[Iterable[Entry]]) -> Entries:
        """Take one sequence of actions and overlapped pairs per device."""
        entries = [list(order) for order in orders]
        flat = [entry for order in entries for entry in order]
        firsts = [entry.forward if isinstance(entry, Overlapped) else entry for entry in flat]
        kind = [Kind.OVERLAPPED if isinstance(entry, Overlapped) else entry.kind for entry in flat]
        pairs = Pairs.of_actions([(row, entry.backward) for row, entry in enumerate(flat) if isinstance(entry, Overlapped)])
        columns = kind, [action.stage for action in firsts], [action.micro_batch for action in firsts]
        return cls(columns, list(map(len, entries)), pairs)
