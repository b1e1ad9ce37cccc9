"""Durations by chance: jitter on what the costs say, or draws from the measurements that they keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schedir.costs.model import CostModel
from schedir.ir.graph import TaskGraph
from schedir.ir.in_order import TaskTimes
from simulator.noise import jitter, stream

Floats = NDArray[np.float64]


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
    """Whether the costs keep measurements to draw from."""
    return isinstance(costs, SampledCosts) and costs.has_samples


def draw(graph: TaskGraph, costs: CostModel, times: TaskTimes, *, noise: float, seed: int, sample: int) -> TaskTimes:
    """Return `times` with drawn durations: jittered if there is noise, else drawn from the costs' measurements.

    `times` are those of the costs, or of the costs on a cluster; there a draw changes a duration by the factor by which it
    changes the costs' own. Tasks that are not computed keep their durations in draws from measurements.
    """
    generator = stream(seed, sample)
    if noise:
        return replace(times, duration=times.duration * jitter(graph.num_tasks, noise, generator))
    if not isinstance(costs, SampledCosts):
        return times
    compute = slice(0, graph.num_compute_tasks)
    own = costs.times(graph).duration[compute]
    drawn = costs.sample_times(graph, generator, 1)[compute, 0]
    duration = times.duration.copy()
    same = duration[compute] == own
    factor = np.divide(drawn, own, out=np.ones_like(own), where=own > 0)
    duration[compute] = np.where(same, drawn, duration[compute] * factor)
    return replace(times, duration=duration)
