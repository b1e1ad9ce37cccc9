"""Edges on their way into a graph: added in groups, stored by target."""

from __future__ import annotations

import numpy as np

from schedir.ir.arrays import Ints
from schedir.ir.graph_data import EdgeKind


class EdgeBuilder:
    """Collects edges in groups and sorts them by target by counting, without a sort."""

    def __init__(self, num_tasks: int) -> None:
        self._groups: list[tuple[Ints, Ints, EdgeKind, bool]] = []
        self._counts = np.zeros(num_tasks, np.int32)

    def add(self, source: Ints, target: Ints, kind: EdgeKind, *, distinct: bool = True) -> None:
        """Add edges; `distinct` promises that no target stands twice in this group."""
        # `+=` counts a target that stands several times in one index only once
        self._groups.append((source, target, kind, distinct))
        if distinct:
            self._counts[target] += 1
        else:
            np.add.at(self._counts, target, 1)

    def build(self) -> tuple[Ints, Ints, Ints]:
        """Return edge_start, edge_source and edge_kind."""
        start = np.zeros(len(self._counts) + 1, np.int64)
        np.cumsum(self._counts, out=start[1:])
        return start, *(self._one_each() if self._counts.max(initial=0) <= 1 else self._several(start))

    def _one_each(self) -> tuple[Ints, Ints]:
        """Return sources and kinds where no task has several."""
        sources, kinds = np.empty(len(self._counts), np.int32), np.empty(len(self._counts), np.int8)
        for source, target, kind, _ in self._groups:
            sources[target], kinds[target] = source, kind
        present = self._counts > 0
        return sources[present], kinds[present]

    def _several(self, start: Ints) -> tuple[Ints, Ints]:
        #   targets   3 1 3       counts by task  0 1 0 2       start  0 0 1 1 3
        #   slots     1 0 2       the next free one of each target, which `fill` keeps
        fill = start[:-1].copy()
        sources, kinds = np.empty(int(start[-1]), np.int32), np.empty(int(start[-1]), np.int8)
        for source, target, kind, distinct in self._groups:
            if distinct:
                slot = fill[target]
                fill[target] += 1
            else:
                order = np.argsort(target, kind="stable")
                first = np.searchsorted(target[order], target[order], side="left")
                slot = np.empty(len(target), np.int64)
                slot[order] = fill[target[order]] + np.arange(len(target)) - first
                np.add.at(fill, target, 1)
            # groups in the order in which they were added: the sources of a task are stored so, on every run
            sources[slot], kinds[slot] = source, kind
        return sources, kinds
