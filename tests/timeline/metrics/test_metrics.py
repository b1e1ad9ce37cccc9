import math

import numpy as np
import pytest

from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.schedules.registry import SCHEDULES
from schedir.timeline.metrics.busy import idle_of
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.timeline import Source, Timeline
from tests.timeline.build import graph_near, graph_of, noisy, run, two_devices_by_hand


def test_both_definitions_of_the_bubble_are_given() -> None:
    """D27: 1f1b p=4 m=8 F=1 B=2 takes 33, of which 9 are idle: 9/33 of the whole, 9/24 of the busy time."""
    found = metrics(run(graph_of("1f1b", 4, 8)))

    assert found.makespan_s == 33.0
    assert found.bubble_fraction == pytest.approx(0.2727, abs=5e-5)
    assert found.bubble_overhead == 0.375


def test_a_run_recorded_by_hand_gives_busy_idle_and_bubble() -> None:
    """D27: span 8, idle 2 and 6, bubble (2 + 6) / 16."""
    found = metrics(two_devices_by_hand())

    assert found.makespan_s == 8.0
    assert [row.busy_s for row in found.devices] == [6.0, 2.0]
    assert [row.idle_s for row in found.devices] == [2.0, 6.0]
    assert found.bubble_fraction == 0.5


def test_tasks_without_a_span_count_as_no_time() -> None:
    found = metrics(two_devices_by_hand())

    assert found.devices[0].update_s == 0.0
    assert found.links == ()
    assert found.critical_path.seconds_by_device == (6.0, 2.0)


@pytest.mark.parametrize(("name", "makespan", "bubble"), [("1f1b", 55.0, 0.454545), ("gpipe", 57.0, 0.473684)])
def test_a_stage_that_is_twice_slower_is_the_bottleneck(name: str, makespan: float, bubble: float) -> None:
    """D30: F=1, B=2, p=4, m=8, stage 2 twice slower: busy 24, 24, 48, 24."""
    found = metrics(run(graph_of(name, 4, 8), slower={2: 2.0}))

    assert found.makespan_s == makespan
    assert found.bubble_fraction == pytest.approx(bubble, abs=1e-6)
    assert [row.busy_s for row in found.devices] == [24.0, 24.0, 48.0, 24.0]
    assert [row.imbalance_s for row in found.devices] == [24.0, 24.0, 0.0, 24.0]


def test_a_stage_that_costs_nothing_divides_nothing_by_zero() -> None:
    """D30: p=3, m=4, stage 1 of cost 0: the other two make (4 + 1) x 3 = 15."""
    found = metrics(run(graph_of("1f1b", 3, 4), slower={1: 0.0}))

    assert found.makespan_s == 15.0
    assert found.devices[1].busy_s == 0.0


def test_a_run_that_takes_no_time_has_no_bubble() -> None:
    found = metrics(run(graph_of("1f1b", 2, 2), dict.fromkeys(Kind, 0.0)))

    assert (found.makespan_s, found.bubble_fraction, found.bubble_overhead, found.recompute_share) == (0.0, 0.0, 0.0, 0.0)


def test_devices_that_only_wait_have_an_infinite_overhead() -> None:
    found = metrics(run(graph_of("1f1b", 2, 1), dict.fromkeys(Kind, 0.0), latency=1.0))

    assert found.bubble_fraction == 1.0
    assert math.isinf(found.bubble_overhead)


@pytest.mark.parametrize(
    ("recompute", "start", "overhead"),
    [("always", "early", 4.0), ("except-last", "early", 3.0), ("always", "on-gradient", 7.0), ("except-last", "on-gradient", 6.0)],
)
def test_recomputation_is_counted_by_its_effect_on_the_makespan(recompute: str, start: str, overhead: float) -> None:
    """D20: GPipe p=4 m=4 takes 21 without, 25, 24, 28 and 27 with recomputation."""
    found = metrics(run(graph_of("gpipe", 4, 4, recompute=recompute, start=start)))

    assert found.recompute_overhead_s == overhead
    assert found.makespan_s == 21.0 + overhead


def test_the_share_of_recomputation_is_of_busy_time() -> None:
    """Always: F + R + B = 1 + 1 + 2 for each micro-batch."""
    assert metrics(run(graph_of("gpipe", 4, 4, recompute="always"))).recompute_share == 0.25


def test_the_span_of_a_device_leaves_out_what_lies_before_and_behind_it() -> None:
    """1f1b p=2 m=1: device 0 works in [0, 6], device 1 in [1, 4]; p=1 alone: [0, 3]."""
    assert metrics(run(graph_of("1f1b", 2, 1))).device_span_s == 6.0
    late = run(graph_of("1f1b", 2, 1), slower={0: 0.0}, latency=1.0)  # device 0 in [0, 5], device 1 in [1, 4]
    assert metrics(late).device_span_s == 5.0


def test_samples_per_second_follow_the_steady_state() -> None:
    """pipedream p=2 at F=1, B=2: one mini-batch every 3 s (test_steady)."""
    found = metrics(run(graph_of("pipedream", 2, 1, num_mini_batches=5), mini_batch_size=6))

    assert found.samples_per_s == 2.0
    assert metrics(run(graph_of("1f1b", 4, 8), mini_batch_size=66)).samples_per_s == 2.0


def test_what_is_not_modelled_is_none() -> None:
    found = metrics(run(graph_of("1f1b", 4, 8)))

    assert (found.samples_per_s, found.tokens_per_s, found.model_flops_utilization, found.percentiles) == (None,) * 4
    assert (found.peak_bytes, found.peak_device, found.fits, found.verdict) == (None,) * 4
    assert found.devices[0].peak_bytes_by_class is None


def test_a_timeline_without_spans_is_refused() -> None:
    graph = graph_of("1f1b", 2, 1)
    nothing = np.full(graph.num_tasks, np.nan)

    with pytest.raises(ArgumentError, match="has no spans: record at least one task"):
        metrics(Timeline(graph, nothing, nothing, Source.MEASURED))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (4, 2), (4, 8)])
@pytest.mark.parametrize("recompute", ["never", "always"])
def test_kinds_sum_to_busy_and_causes_to_idle(name: str, shape: tuple[int, int], recompute: str) -> None:
    found = metrics(noisy(graph_near(name, *shape, recompute=recompute), seed=7))

    for row in found.devices:
        kinds = [getattr(row, f"{kind}_s") for kind in ("forward", "backward", "input_grad", "weight_grad", "overlapped")]
        kinds += [row.recompute_s, row.update_s, row.predict_s]
        causes = row.idle_by_cause_s
        assert sum(kinds) == pytest.approx(row.busy_s)
        assert row.busy_s + row.idle_s == pytest.approx(found.makespan_s)
        assert causes.start_up + causes.drain + causes.dependency + causes.transfer + causes.reduce == pytest.approx(row.idle_s)
        assert min(causes.start_up, causes.drain, causes.dependency, causes.transfer, causes.reduce) >= -1e-12


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_measured_run_and_a_prediction_with_the_same_spans_have_the_same_figures(name: str) -> None:
    predicted = noisy(graph_near(name, 3, 4), seed=3)
    measured = Timeline(predicted.graph, predicted.start, predicted.end, Source.MEASURED, predicted.release)

    assert metrics(measured) == metrics(predicted)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_critical_path_is_as_long_as_the_run(name: str) -> None:
    found = metrics(noisy(graph_near(name, 3, 4), seed=5))

    length = sum(found.critical_path.seconds_by_kind.values()) + found.critical_path.transfer_s
    assert length == pytest.approx(found.makespan_s)


def test_a_device_that_is_never_idle_has_no_negative_bubble() -> None:
    """One device has nobody to wait for: idle is 0 by definition, whatever float64 makes of the sums."""
    seconds = {Kind.FORWARD: 1.3, Kind.BACKWARD: 2.1, Kind.UPDATE: 0.11}
    for mini_batches in range(1, 8):
        found = metrics(run(graph_of("gpipe", 1, 1, num_mini_batches=mini_batches), seconds))
        steady = found.bubble_fraction if found.steady is None else found.steady.bubble_fraction
        assert min(found.bubble_fraction, steady, found.devices[0].idle_s) >= 0.0
        assert max(found.bubble_fraction, steady) < 1e-12


def test_more_busy_seconds_than_there_are_stay_negative() -> None:
    assert idle_of(1.0, 1.0 + 1e-6) == pytest.approx(-1e-6)
    assert idle_of(1.0, 1.0 + 2e-16) == 0.0
