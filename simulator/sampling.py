"""Durations by chance: jitter on what the costs say, or draws from the measurements that they keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from schedir.costs.model import CostModel
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from simulator.noise import jittered, stream


@runtime_checkable
class SampledCosts(Protocol):
    """Costs that may keep single measurements."""

    @property
    def has_samples(self) -> bool:
        """Whether draws vary."""
        ...

    def sample_times(self, graph: TaskGraph, rng: np.random.Generator, samples: int) -> Floats:
        """Return durations of the compute tasks, float64 (num_tasks, samples), every task's own draw."""
        ...


def has_samples(costs: CostModel) -> bool:
    """Return whether the costs keep measurements to draw from."""
    return isinstance(costs, SampledCosts) and costs.has_samples


@dataclass(slots=True, eq=False)
class Draws:
    """Draws of all durations, one after the other from one stream of random numbers: the first is that of a single run."""

    graph: TaskGraph
    costs: CostModel
    duration: Floats
    """float64 (num_tasks): the costs' own, or on a cluster; there a draw counts by the factor by which it changes the former."""
    jitter: float
    """Standard deviation of a duration's logarithm; 0: draw from the costs' measurements."""
    generator: np.random.Generator

    @classmethod
    def of(cls, graph: TaskGraph, costs: CostModel, duration: Floats, *, jitter: float, seed: int) -> Draws:
        """Begin the draws of a seed."""
        return cls(graph, costs, duration, jitter, stream(seed))

    def next(self) -> Floats:
        """Return durations, float64 (num_tasks); without jitter those of transfers and reductions stay."""
        if self.jitter or not isinstance(self.costs, SampledCosts):
            return jittered(self.duration, self.jitter, self.generator)
        compute = slice(0, self.graph.num_compute_tasks)
        own = self.costs.times(self.graph).duration[compute]
        drawn = self.costs.sample_times(self.graph, self.generator, 1)[compute, 0]
        duration = self.duration.copy()
        # on a cluster a duration is the costs' own over the device's speed, and a draw changes it in proportion; without one the
        # draw itself is taken, to the last bit
        factor = np.divide(drawn, own, out=np.ones_like(own), where=own > 0)
        duration[compute] = np.where(duration[compute] == own, drawn, duration[compute] * factor)
        return duration
