"""In which order the tasks of a graph can be evaluated: what `order_search` finds, and passes over a graph follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from schedir.ir.arrays import Ints, frozen_array


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """What compute tasks wait for, looked at through transfers; column k holds the k-th need of every compute task."""

    source: tuple[Ints, ...]
    """int32 columns (num_compute_tasks): the compute task that is waited for; num_compute_tasks where there is none, and from
    num_compute_tasks + 1 on the reductions, in the order of their tasks."""
    through: tuple[Ints, ...]
    """int32 columns (num_compute_tasks): the transfer in between, or the reduction itself; num_tasks where there is none."""
    sender: Ints
    """int32 (num_transfers): the compute task that each transfer carries the result of."""


@dataclass(frozen=True, eq=False)
class Topology:
    """In which order tasks can be evaluated."""

    compute_order: Ints
    """int32 (num_compute_tasks): every compute task behind all that it waits for."""
    needs: Needs
    bounds: Ints | None = None
    """int64: compute tasks compute_order[bounds[w]:bounds[w + 1]] do not depend on each other; None without waves."""
    complete: Ints | None = None
    """The order of all tasks where there are reductions, whose place `needs` does not say."""

    @cached_property
    def order(self) -> Ints:
        """int32 (num_tasks): every task behind all that it waits for, transfers right behind their sender (its wave)."""
        if self.complete is not None:
            return self.complete
        place, numbers = np.empty(len(self.compute_order), np.int32), np.arange(len(self.compute_order), dtype=np.int32)
        waves = numbers if self.bounds is None else np.repeat(numbers[: len(self.bounds) - 1], np.diff(self.bounds))
        place[self.compute_order] = waves
        # even keys for compute tasks, the odd key behind each for what it sends
        key = np.concatenate((2 * place, 2 * place[self.needs.sender] + 1))
        return frozen_array(np.argsort(key, kind="stable"), np.int32)
