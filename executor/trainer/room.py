"""How much a training without end keeps: no more the longer it trains."""

from __future__ import annotations

from dataclasses import dataclass

from executor.plan.endless import Endless, depth_of

SHOWN = 8
"""Mini-batches beyond those under way that are kept for the timeline."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many mini-batches and tasks of one schedule are kept."""

    depth: int
    """Mini-batches that may be asked for before the first of them is done; 0 under a flush."""
    shown: int
    """Mini-batches of a timeline."""
    passes: int
    """Repeats of a synchronous program whose spans are surely all kept."""
    mini_batches: int
    """The newest mini-batches that a timeline may be of."""
    tasks: int
    """The newest tasks, whose spans and reads are kept."""

    @classmethod
    def of(cls, endless: Endless) -> Room:
        """Return what a schedule needs."""
        graph, period = endless.table.graph, endless.period
        if graph.program.weights.synchronous:
            return cls(0, period, SHOWN, (SHOWN + 1) * period, ((SHOWN + 1) * period + 2) * endless.block)
        depth = depth_of(graph)
        return cls(depth, depth + SHOWN, SHOWN, depth + SHOWN, (2 * depth + SHOWN + period + 2) * endless.block)
