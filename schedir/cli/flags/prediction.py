"""From the flags of costs, sizes and engine to a predicted timeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from schedir.cli.flags.costs import read_cluster, read_costs
from schedir.cli.flags.options import ChoosingOptions, GraphOptions, OrderOptions
from schedir.cli.flags.prediction_options import CostOptions, EngineOptions, SizeOptions
from schedir.errors import ArgumentError, RefusedError

if TYPE_CHECKING:
    from schedir.costs.model import CostModel
    from schedir.ir.graph import TaskGraph
    from schedir.ir.program import Program
    from schedir.timeline.metrics.metrics import Metrics, Percentiles
    from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all schedules of a command have in common, as it stands on the command line."""

    costs: CostOptions
    options: ChoosingOptions
    order: OrderOptions
    lowering: GraphOptions
    sizes: SizeOptions
    engine: EngineOptions


def check_skip_bytes(costs: CostOptions, lowering: GraphOptions) -> None:
    """Raise ArgumentError for bytes of skip connections where there are none."""
    if costs.skip_bytes is not None and lowering.skips is None:
        raise ArgumentError("--skip-bytes: no stages are joined by a skip connection: give --skips, too, or leave it out")


def predict(graph: TaskGraph, options: CostOptions, *, sizes: SizeOptions, engine: EngineOptions) -> Timeline:
    """Simulate a graph under the given costs; raises SchedirError for what does not fit together."""
    from simulator import simulate

    size = micro_batch_size(sizes, graph.program)
    timeline = simulate(
        graph,
        resized(read_costs(options), size),
        cluster=read_cluster(options),
        engine=engine.engine or "auto",
        seed=engine.seed,
        sends=engine.sends or "buffered",
        jitter=engine.jitter or 0.0,
        memory_limit=engine.memory_limit,
        cores=engine.cores,
    )
    return timeline if size is None else with_sizes(timeline, size)


def spread_of(graph: TaskGraph, common: Common, samples: int | None) -> Percentiles | None:
    """Return percentiles over draws of all durations, if samples are asked for."""
    if samples is None:
        return None
    check_draws(common.engine)
    from simulator import monte_carlo

    drawn = monte_carlo(
        graph,
        resized(read_costs(common.costs), micro_batch_size(common.sizes, graph.program)),
        samples=samples,
        seed=common.engine.seed or 0,
        cluster=read_cluster(common.costs),
        jitter=common.engine.jitter or 0.0,
        cores=common.engine.cores,
    )
    return drawn.percentiles


def check_draws(engine: EngineOptions) -> None:
    """Raise ArgumentError for sends that cannot be drawn with."""
    if engine.sends == "rendezvous":
        raise ArgumentError("--samples draws with buffered sends only: leave out --sends rendezvous")


def micro_batch_size(sizes: SizeOptions, program: Program) -> int | None:
    """Return the samples of a micro-batch where they are given, directly or as those of a mini-batch."""
    m = program.num_micro_batches
    if sizes.mini_batch_size is None:
        return sizes.micro_batch_size
    whole, rest = divmod(sizes.mini_batch_size, m)
    if rest:
        nearest = f"{whole * m} and {(whole + 1) * m}" if whole else str(m)
        raise ArgumentError(
            f"mini_batch_size {sizes.mini_batch_size} does not split into {m} equal micro-batches: nearest are {nearest}"
        )
    if sizes.micro_batch_size not in {None, whole}:
        raise ArgumentError(
            f"mini_batch_size {sizes.mini_batch_size} is not {m} micro-batches x micro_batch_size {sizes.micro_batch_size}: "
            "leave one of them out"
        )
    return whole


def resized(costs: CostModel, size: int | None) -> CostModel:
    """Return the costs for micro-batches of that size; uniform costs are those of a micro-batch, whatever its size."""
    from schedir.costs.table.table import TableCosts

    return costs.resized(size) if size is not None and isinstance(costs, TableCosts) else costs


def with_sizes(timeline: Timeline, size: int) -> Timeline:
    """Return the timeline with the samples that it was for, so that it has samples per second."""
    m = timeline.graph.program.num_micro_batches
    return replace(timeline, meta={**timeline.meta, "micro_batch_size": size, "mini_batch_size": size * m})


def check_fit(figures: Metrics, whose: str = "") -> None:
    """Raise RefusedError unless every device is known to have enough memory; `whose` stands before the verdict."""
    if figures.fits is None:
        what = "no limit is known: give --memory-limit or --cluster"
        raise RefusedError(
            f"--require-fit: {'memory is not computed: give --costs with bytes' if figures.peak_bytes is None else what}"
        )
    if not figures.fits:
        raise RefusedError(f"{whose}{figures.verdict}")
