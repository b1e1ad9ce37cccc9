"""Several schedules side by side on the same work: one mini-batch costs each of them the same work, however it is cut.

The costs are those of a micro-batch of the schedule with most micro-batches; a schedule that cuts the mini-batch into fewer,
larger ones takes its forwards and backwards in proportion. All run the same number of mini-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from schedir.compiler import compile_program
from schedir.costs.cluster import Cluster
from schedir.costs.model import CostModel
from schedir.costs.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError
from schedir.ir.program import Program
from schedir.timeline.metrics import Metrics, metrics
from schedir.timeline.timeline import Timeline

FIGURE_MINI_BATCHES = 3
"""Mini-batches in the figure: enough to see where schedules without a flush gain, few enough to see single actions."""

_PROPORTIONAL = ("forward", "backward", "input_grad", "weight_grad", "recompute", "overlapped", "transfer_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all schedules have in common."""

    costs: CostModel
    cluster: Cluster | None = None
    recompute: str = "never"
    recompute_start: str = "early"
    engine: str = "auto"
    seed: int | None = None
    sends: str = "buffered"
    jitter: float = 0.0
    memory_limit: float | None = None
    """Bytes of every device; None: the cluster's."""
    cores: int | None = None
    """All devices share so many cores of one host; None: the cluster's, or one each."""
    mini_batch_size: int | None = None
    """Samples of a mini-batch, for samples per second; None: not known."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One of the schedules that are compared."""

    timeline: Timeline
    figures: Metrics

    @property
    def seconds_per_mini_batch(self) -> float:
        """In steady state where there is one: what schedules are ordered by."""
        steady = self.figures.steady
        return self.figures.seconds_per_mini_batch if steady is None else steady.seconds_per_mini_batch

    @property
    def bubble_fraction(self) -> float:
        """In steady state where there is one."""
        steady = self.figures.steady
        return self.figures.bubble_fraction if steady is None else steady.bubble_fraction


def compare_schedules(programs: Sequence[Program], setting: Setting) -> tuple[Side, ...]:
    """Predict every program; they have equally many mini-batches. Raises SchedirError for what does not fit together."""
    most = max(program.num_micro_batches for program in programs)
    return tuple(_predict(program, setting, most) for program in programs)


def _predict(program: Program, setting: Setting, most_micro_batches: int) -> Side:
    from simulator import simulate

    graph = compile_program(program, recompute=setting.recompute, recompute_start=setting.recompute_start)
    costs = in_proportion(setting.costs, most_micro_batches / program.num_micro_batches)
    timeline = simulate(
        graph,
        costs,
        cluster=setting.cluster,
        engine=setting.engine,
        seed=setting.seed,
        sends=setting.sends,
        jitter=setting.jitter,
        memory_limit=setting.memory_limit,
        cores=setting.cores,
    )
    if setting.mini_batch_size is not None:
        timeline = replace(timeline, meta={**timeline.meta, "mini_batch_size": setting.mini_batch_size})
    return Side(timeline, metrics(timeline))


def in_proportion(costs: CostModel, factor: float) -> CostModel:
    """Return the costs of micro-batches that are `factor` times as large."""
    if factor == 1.0:
        return costs
    if getattr(costs, "micro_batch_sizes", None) is not None:
        raise ArgumentError("micro_batch_sizes fix how the mini-batch is cut: give every schedule as many micro-batches")
    if isinstance(costs, TableCosts):
        return costs.resized(_whole(factor * costs.micro_batch_size))
    assert isinstance(costs, UniformCosts), "there are two kinds of costs"
    given = {name: getattr(costs, name) for name in _PROPORTIONAL}
    scaled: dict[str, Any] = {name: _scaled(value, factor) for name, value in given.items() if value is not None}
    return replace(costs, **scaled)


def _whole(samples: float) -> int:
    if samples != round(samples):
        raise ArgumentError(
            f"a micro-batch would have {samples:g} samples: choose numbers of micro-batches that divide the largest of them"
        )
    return round(samples)


def _scaled(value: float | Sequence[float], factor: float) -> float | tuple[float, ...]:
    return tuple(factor * entry for entry in value) if isinstance(value, Sequence) else factor * value
