"""Several schedules side by side on the same work: one mini-batch costs each of them the same work, however it is cut.

`equal_work` says how it is shared out over micro-batches and stages. All run the same number of mini-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from schedir.compiler import compile_with
from schedir.costs.cluster.cluster import Cluster
from schedir.costs.model import CostModel
from schedir.errors import ArgumentError
from schedir.ir.compile_options import CompileOptions
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.timeline.metrics.metrics import Metrics, Percentiles, metrics
from schedir.timeline.timeline import Timeline
from schedir.workflows.comparing.equal_work import EqualWork, equal_work


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSetting:
    """What all schedules have in common."""

    costs: CostModel
    """Of a stage of the schedule with fewest stages, and of a micro-batch of the one with most micro-batches."""
    cluster: Cluster | None = None
    lowering: CompileOptions = field(default_factory=CompileOptions)
    """How programs are compiled. Skip connections and ties name stages, which then have to be the same of all schedules."""
    engine: str = "auto"
    seed: int | None = None
    sends: str = "buffered"
    jitter: float = 0.0
    samples: int | None = None
    """Draws of all durations, for percentiles; None: no percentiles."""
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


def compare_schedules(programs: Sequence[Program], setting: CommonSetting) -> tuple[ComparedSchedule, ...]:
    """Predict every program; they have equally many mini-batches. Raises SchedirError for what does not fit together."""
    if setting.lowering.skips or setting.lowering.ties:
        _check_same_stages(programs)
    work = equal_work(setting.costs, programs)
    return tuple(_predict(program, setting, work) for program in programs)


def _check_same_stages(programs: Sequence[Program]) -> None:
    """Refuse numbers of stages that differ: stage 2 of one schedule would be another piece of the model than stage 2 of another."""
    fewest, most = (choose(programs, key=lambda program: program.num_stages) for choose in (min, max))
    if fewest.num_stages < most.num_stages:
        raise ArgumentError(
            f"skip connections and ties name stages, but {fewest.name} has {fewest.num_stages} and {most.name} {most.num_stages}: "
            "compare schedules with equally many stages"
        )


def _predict(program: Program, setting: CommonSetting, work: EqualWork) -> ComparedSchedule:
    from simulator import simulate

    costs = work.of(program)
    graph = compile_with(program, setting.lowering)
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
    if work.how(program):
        timeline = replace(timeline, meta={**timeline.meta, "stage_work": work.how(program)})  # pictures say so
    return ComparedSchedule(timeline, metrics(timeline, percentiles=_percentiles(graph, costs, setting)))


def _percentiles(graph: TaskGraph, costs: CostModel, setting: CommonSetting) -> Percentiles | None:
    if setting.samples is None:
        return None
    from simulator import monte_carlo

    drawn = monte_carlo(
        graph,
        costs,
        samples=setting.samples,
        seed=setting.seed or 0,
        cluster=setting.cluster,
        jitter=setting.jitter,
        cores=setting.cores,
    )
    return drawn.percentiles
