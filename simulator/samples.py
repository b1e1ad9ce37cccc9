"""Monte-Carlo: the same graph many times, with durations drawn anew, and what that does to the figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.model import CostModel
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes, evaluate_samples
from schedir.timeline.metrics.busy import idle_of
from schedir.timeline.metrics.metrics import Percentiles
from simulator.engine import SimpyEngine
from simulator.noise import check_jitter, check_seed
from simulator.sampling import Draws, has_samples
from simulator.setting import Setting, setting_of

USUAL_JITTER = 0.03
"""Standard deviation of a duration's logarithm where neither jitter nor measurements are given: a few percent."""

BLOCK = 2_000_000
"""Samples are evaluated side by side, as many at once as keep tasks x samples below this (some 50 MB)."""

MOST_SAMPLES = 10**6
"""Samples of one call: far more than any percentile needs, and still no matter of days."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MonteCarlo:
    """Figures of every sample; the first is what `simulate` finds with the same seed and jitter."""

    seed: int
    jitter: float
    """Standard deviation of a duration's logarithm; 0: the costs' own measurements were drawn."""
    makespan_s: Floats
    """float64 (num_samples)."""
    seconds_per_mini_batch: Floats
    """float64 (num_samples): makespan / mini-batches."""
    bubble_fraction: Floats
    """float64 (num_samples): 1 - busy seconds / (devices x makespan)."""

    def __len__(self) -> int:
        return len(self.makespan_s)

    def __repr__(self) -> str:
        median, high = np.percentile(self.seconds_per_mini_batch, (50, 95))
        return f"<MonteCarlo: {len(self)} draws, seed {self.seed}, per mini-batch p50 {median:.6g} s, p95 {high:.6g} s>"

    @property
    def percentiles(self) -> Percentiles:
        """Mean, p50, p95 and p99, as under `percentiles` in `simulate --json`; `schedir.metrics` takes them."""
        return Percentiles(
            samples=len(self),
            seed=self.seed,
            seconds_per_mini_batch=_summary(self.seconds_per_mini_batch),
            bubble_fraction=_summary(self.bubble_fraction),
        )


def monte_carlo(  # noqa: PLR0913 - every condition of a run has its name here
    graph: TaskGraph,
    costs: CostModel,
    *,
    samples: int = 200,
    seed: int = 0,
    cluster: Cluster | None = None,
    jitter: float | None = None,
    cores: int | None = None,
) -> MonteCarlo:
    """Evaluate a graph on `samples` draws of its durations.

    With `jitter` every duration is multiplied by a factor whose logarithm is normal with this standard deviation. With 0, and
    where it is not given and the costs keep measurements, every task draws from those; costs without any get USUAL_JITTER.
    Samples are evaluated side by side unless something is shared, on the cluster or, as in `simulate`, the `cores` of one host.
    Raises RefusedError where nothing varies (a jitter of 0), ArgumentError for values out of range.
    """
    if isinstance(samples, bool) or not isinstance(samples, Integral) or samples < 1:
        raise ArgumentError(f"samples {samples!r} must be an integer of at least 1")
    if samples > MOST_SAMPLES:
        raise ArgumentError(f"samples {samples} are more than the {MOST_SAMPLES} that are drawn at most: give fewer")
    if jitter is None:
        jitter = 0.0 if has_samples(costs) else USUAL_JITTER
    sigma, seed = check_jitter(jitter), check_seed(seed) or 0
    if not sigma and not has_samples(costs):
        raise RefusedError(f"samples {samples} would all be alike: the costs keep no samples, so give jitter, such as 0.03")
    setting = setting_of(graph, costs, cluster, cores=cores)
    draws = Draws.of(graph, costs, setting.times.duration, jitter=sigma, seed=seed)
    evaluate = _one_by_one if setting.conditions else _side_by_side
    makespan, busy = evaluate(setting, draws, samples)
    whole = graph.program.num_devices * makespan
    # a run in which nothing takes time is busy throughout: no bubble, and no 0 / 0
    used = np.divide(busy, whole, out=np.ones_like(whole), where=whole > 0)
    return MonteCarlo(
        seed=seed,
        jitter=sigma,
        makespan_s=makespan,
        seconds_per_mini_batch=makespan / graph.program.num_mini_batches,
        bubble_fraction=np.array([idle_of(1.0, share) for share in used.tolist()]),
    )


def _side_by_side(setting: Setting, draws: Draws, samples: int) -> tuple[Floats, Floats]:
    """Return makespan and busy seconds of every sample, by array operations over blocks of samples."""
    graph, times = setting.graph, setting.times
    latency = None if times.latency is None else times.latency[:, None]
    block = max(1, BLOCK // max(graph.num_tasks, 1))
    makespan, busy = np.empty(samples), np.empty(samples)
    for low in range(0, samples, block):
        part = slice(low, min(low + block, samples))
        # (tasks, samples), rows in one piece: the pass goes task by task and takes a row each time
        duration = np.ascontiguousarray(np.stack([draws.next() for _ in range(low, part.stop)]).T)
        start, end = evaluate_samples(graph, duration, latency=latency, gap=times.gap)
        makespan[part] = end.max(axis=0) - start.min(axis=0)
        busy[part] = duration[: graph.num_compute_tasks].sum(axis=0)
    return makespan, busy


def _one_by_one(setting: Setting, draws: Draws, samples: int) -> tuple[Floats, Floats]:
    """Return the same where lanes share something: the SimPy engine on every sample."""
    makespan, busy = np.empty(samples), np.empty(samples)
    compute = slice(0, setting.graph.num_compute_tasks)
    for sample in range(samples):
        times = TaskTimes(draws.next(), setting.times.latency, setting.times.gap)
        spans = SimpyEngine(setting.graph, times, setting.conditions).run()
        makespan[sample] = spans.end.max() - spans.start.min()
        busy[sample] = (spans.release - spans.start)[compute].sum()
    return makespan, busy


def _summary(values: Floats) -> Mapping[str, float]:
    return {"mean": float(values.mean())} | {f"p{percent}": float(np.percentile(values, percent)) for percent in (50, 95, 99)}
