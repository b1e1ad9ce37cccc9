"""Monte-Carlo."""

import json
from typing import Any

import numpy as np
import pytest

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.cluster.hardware import Device
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.costs.work import WorkTime
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import evaluate_samples
from schedir.schedules.registry import schedule_names
from schedir.timeline.metrics.metrics import metrics
from simulator import MonteCarlo, monte_carlo, simulate
from simulator import samples as samples_module
from tests.simulator.doubles import graph_of

MEASURED = TableCosts(
    rows=tuple(
        PieceCosts(forward=WorkTime(1.0, samples=(0.9, 1.0, 1.3)), backward=WorkTime(2.0, samples=(1.9, 2.0, 2.4)))
        for _ in range(3)
    ),
    dispatch_gap_s=0.01,
    transfer=0.1,
)


@pytest.mark.parametrize("schedule", schedule_names())
def test_the_first_sample_is_the_simulation_of_the_same_seed(schedule: str) -> None:
    graph = graph_of(schedule, 4, 8)
    found = monte_carlo(graph, UniformCosts(transfer=0.1), samples=3, seed=11, jitter=0.05)
    figures = metrics(simulate(graph, UniformCosts(transfer=0.1), seed=11, jitter=0.05))

    assert found.makespan_s[0] == figures.makespan_s
    assert found.seconds_per_mini_batch[0] == figures.seconds_per_mini_batch
    assert found.bubble_fraction[0] == pytest.approx(figures.bubble_fraction, rel=1e-12)


def test_measured_samples_are_drawn_where_there_is_no_jitter() -> None:
    graph = graph_of("1f1b", 3, 4)

    found = monte_carlo(graph, MEASURED, samples=50, seed=3)

    assert found.makespan_s[0] == simulate(graph, MEASURED, seed=3).makespan_s
    durations = simulate(graph, MEASURED, seed=3).end - simulate(graph, MEASURED, seed=3).start
    assert set(np.round(durations[: graph.num_compute_tasks], 9).tolist()) == {0.0, 0.9, 1.0, 1.3, 1.9, 2.0, 2.4}
    assert len(set(found.makespan_s.tolist())) > 10


def test_measurements_count_by_their_factor_on_a_slower_device() -> None:
    graph = graph_of("1f1b", 3, 4)
    slow = Cluster(name="slow", num_hosts=3, devices_per_host=1, device=Device(speed=0.5))

    timeline = simulate(graph, MEASURED, cluster=slow, seed=3)

    durations = (timeline.end - timeline.start)[: graph.num_compute_tasks]
    assert set(np.round(durations, 9).tolist()) == {0.0, 1.8, 2.0, 2.6, 3.8, 4.0, 4.8}


def test_samples_do_not_depend_on_how_many_are_evaluated_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of("1f1b", 3, 4)
    at_once = monte_carlo(graph, UniformCosts(), samples=7, jitter=0.1)
    widths: list[int] = []

    def noted(graph: TaskGraph, duration: np.ndarray, **given: Any) -> tuple[np.ndarray, np.ndarray]:
        widths.append(duration.shape[1])
        return evaluate_samples(graph, duration, **given)

    monkeypatch.setattr(samples_module, "BLOCK", 2 * graph.num_tasks)
    monkeypatch.setattr(samples_module, "evaluate_samples", noted)

    assert monte_carlo(graph, UniformCosts(), samples=7, jitter=0.1).makespan_s.tolist() == at_once.makespan_s.tolist()
    assert widths == [2, 2, 2, 1]


def test_a_device_that_never_idles_has_no_bubble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of durations exceed the makespan by rounding; what is below 0 by no more is 0, as in `schedir.metrics`."""
    monkeypatch.setattr(samples_module, "_side_by_side", samples_module._one_by_one)  # end - start of each task is rounded
    found = monte_carlo(graph_of("gpipe", 1, 16), UniformCosts(forward=0.1, backward=0.2), samples=200, jitter=0.1)

    assert found.bubble_fraction.min() == 0
    assert found.bubble_fraction.max() < 1e-12


def test_percentiles_are_those_of_the_samples() -> None:
    found = monte_carlo(graph_of("gpipe", 2, 2, mini_batches=3), UniformCosts(), samples=101, seed=4, jitter=0.1)

    ranked = np.sort(found.makespan_s / 3)
    percentiles = found.percentiles
    assert (percentiles.samples, percentiles.seed) == (101, 4)
    assert percentiles.seconds_per_mini_batch == pytest.approx(
        {"mean": ranked.mean(), "p50": ranked[50], "p95": ranked[95], "p99": ranked[99]}
    )
    assert set(percentiles.bubble_fraction) == {"mean", "p50", "p95", "p99"}
    assert json.loads(json.dumps(dict(percentiles.bubble_fraction))) == percentiles.bubble_fraction


def test_draws_are_shown_by_what_is_usual_and_what_is_rarely_exceeded() -> None:
    steps = np.arange(101.0)
    found = MonteCarlo(seed=4, jitter=0.1, makespan_s=2 * steps, seconds_per_mini_batch=steps, bubble_fraction=steps / 200)

    assert repr(found) == "<MonteCarlo: 101 draws, seed 4, per mini-batch p50 50 s, p95 95 s>"


def test_noise_makes_a_pipeline_slower_than_the_mean_of_its_durations() -> None:
    graph = graph_of("1f1b", 4, 8)

    assert monte_carlo(graph, UniformCosts(), samples=100, jitter=0.2).makespan_s.mean() > 33


def test_costs_without_measurements_vary_by_3_percent_if_nothing_is_said() -> None:
    """The jitter of the format's example of a sweep; the call is that of the design."""
    graph = graph_of("1f1b", 4, 8)

    found = monte_carlo(graph, UniformCosts(), samples=20, seed=5)

    assert found.jitter == 0.03
    assert found.makespan_s.tolist() == monte_carlo(graph, UniformCosts(), samples=20, seed=5, jitter=0.03).makespan_s.tolist()
    assert len(set(found.makespan_s.tolist())) == 20


def test_measurements_are_drawn_if_nothing_is_said() -> None:
    assert monte_carlo(graph_of("1f1b", 3, 4), MEASURED, samples=2).jitter == 0


def test_costs_that_never_vary_are_refused() -> None:
    with pytest.raises(
        RefusedError, match=r"samples \d+ would all be alike: the costs keep no samples, so give jitter, such as 0\.03"
    ):
        monte_carlo(graph_of("gpipe", 2, 2), UniformCosts(), jitter=0.0)


def test_more_samples_than_anybody_needs_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^samples 1000001 are more than the 1000000 that are drawn at most: give fewer$"):
        monte_carlo(graph_of("gpipe", 2, 2), UniformCosts(), samples=1_000_001, jitter=0.1)


@pytest.mark.parametrize("samples", [0, -1, 2.5, True])
def test_samples_must_be_a_positive_integer(samples: Any) -> None:
    with pytest.raises(ArgumentError, match=r"samples .* must be an integer of at least 1"):
        monte_carlo(graph_of("gpipe", 2, 2), UniformCosts(), samples=samples, jitter=0.1)
