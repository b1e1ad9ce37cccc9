"""Several schedules side by side on the same work: one mini-batch costs each of them the same work, however it is cut.

`equal_work` says how it is shared out over micro-batches and stages. All run the same number of mini-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedir.compiler import compile_program
from schedir.costs.cluster.cluster import Cluster
from schedir.costs.model import CostModel
from schedir.ir.program import Program
from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.timeline import Timeline
from schedir.workflows.equal_work import equal_work

FIGURE_MINI_BATCHES = 3
"""Mini-batches in the figure: enough to see where schedules without a flush gain, few enough to see single actions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSetting:
    """What all schedules have in common."""

    costs: CostModel
    """Of a stage of the schedule with fewest stages, and of a micro-batch of the one with most micro-batches."""
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
class ComparedSchedule:
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


def compare_schedules(programs: Sequence[Program], setting: CommonSetting) -> tuple[ComparedSchedule, ...]:
    """Predict every program; they have equally many mini-batches. Raises SchedirError for what does not fit together."""
    work = equal_work(setting.costs, programs)
    return tuple(_predict(program, setting, work.of(program)) for program in programs)


def _predict(program: Program, setting: CommonSetting, costs: CostModel) -> ComparedSchedule:
    from simulator import simulate

    graph = compile_program(program, recompute=setting.recompute, recompute_start=setting.recompute_start)
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
    return ComparedSchedule(timeline, metrics(timeline))
