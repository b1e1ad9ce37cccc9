import json
from typing import Any

import jsonschema
import numpy as np
import pytest

from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.schedules.registry import SCHEDULES
from schedir.timeline.comparison.compare import Verdict, compare
from schedir.timeline.comparison.report import compare_report
from schedir.timeline.timeline import MemorySteps, Source, Timeline
from tests.near import near
from tests.timeline.build import graph_near, graph_of, noisy, recorded, run, two_devices_by_hand
from tests.timeline.metrics.test_peaks import memory_of
from tests.timeline.metrics.test_report import SCHEMA


def measured(timeline: Timeline, *, memory: tuple[MemorySteps, ...] | None = None, **meta: Any) -> Timeline:
    return Timeline(timeline.graph, timeline.start, timeline.end, Source.MEASURED, timeline.release, memory, meta)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_compared_with_itself_has_no_error(name: str) -> None:
    predicted = noisy(graph_near(name, 3, 4), seed=1)
    found = compare(predicted, measured(predicted))

    assert found.step_error_fraction == 0.0
    assert found.bubble_error_points == 0.0
    assert found.structural_error_fraction == pytest.approx(0.0)
    assert set(found.duration_error_by_kind.values()) == {0.0}
    assert (found.start_error_fraction.max, found.critical_path_overlap) == (0.0, near(1.0))
    assert set(found.order_agreement) == {1.0}
    assert found.verdict is Verdict.WITHIN_NOISE


def test_costs_that_are_too_low_are_a_duration_error() -> None:
    """1f1b p=4 m=8: 33 predicted, all tasks a tenth longer: 36.3, error -1/11. The last update starts at 33, measured at 36.3."""
    graph = graph_of("1f1b", 4, 8)
    found = compare(run(graph), measured(run(graph, slower=dict.fromkeys(range(4), 1.1))))

    assert found.step_error_fraction == pytest.approx(-1 / 11)
    assert found.duration_error_fraction == pytest.approx(-1 / 11)
    assert found.duration_error_by_kind == {"forward": pytest.approx(-1 / 11), "backward": pytest.approx(-1 / 11)}
    assert found.structural_error_fraction == pytest.approx(0.0)
    assert found.bubble_error_points == pytest.approx(0.0)
    assert found.start_error_fraction.max == pytest.approx(3.3 / 36.3)
    assert found.verdict is Verdict.DURATIONS


def test_launch_gaps_are_a_structural_error() -> None:
    """D25: 0.1 before every task makes 33 + 22 x 0.1 = 35.2, less the gap before the first start; the replay on the measured
    durations makes 33, within a tenth."""
    graph = graph_of("1f1b", 4, 8)
    found = compare(run(graph), measured(run(graph, gap=0.1)))

    assert found.measured.makespan_s == pytest.approx(35.1)
    assert found.structural_error_fraction == pytest.approx(33 / 35.1 - 1)
    assert abs(found.structural_error_fraction) < 0.1
    assert found.duration_error_fraction == pytest.approx(0.0)
    assert found.step_error_fraction == pytest.approx(33 / 35.1 - 1)
    assert found.verdict is Verdict.STRUCTURE


def test_the_error_of_the_step_is_the_product_of_its_parts() -> None:
    graph = graph_of("1f1b", 4, 8)
    found = compare(run(graph), measured(run(graph, slower={2: 1.3}, gap=0.2)))

    product = (1 + found.duration_error_fraction) * (1 + found.structural_error_fraction)
    assert found.step_error_fraction == pytest.approx(product - 1)


def test_the_step_of_the_steady_state_is_compared_where_there_is_one() -> None:
    """pipedream p=2: 3 s per mini-batch; with stage 1 twice slower 6 s (test_steady)."""
    graph = graph_of("pipedream", 2, 1, num_mini_batches=9)

    assert compare(run(graph), measured(run(graph, slower={1: 2.0}))).step_error_fraction == pytest.approx(-0.5)


def test_the_bubble_is_compared_in_points() -> None:
    """D30: stage 2 twice slower makes 45.4545 % of 27.2727 %."""
    graph = graph_of("1f1b", 4, 8)
    found = compare(run(graph), measured(run(graph, slower={2: 2.0})))

    assert found.bubble_error_points == pytest.approx(27.2727 - 45.4545, abs=1e-3)


def scaled(factor: float, **meta: Any) -> Timeline:
    """Measure p=1 m=1, predicted to take 3 s, `factor` times as long."""
    return measured(run(GRAPH, slower={0: factor}), **meta)


GRAPH = graph_of("1f1b", 1, 1)


def test_of_several_measurements_the_median_counts() -> None:
    """Steps of 3 s x 0.9, 1, 1.1: the prediction of 3 s is right; the noise floor is 1.5/11 (test_noise_floor)."""
    found = compare(run(GRAPH), [scaled(1.1), scaled(0.9), scaled(1.0)])

    assert found.step_error_fraction == pytest.approx(0.0)
    assert found.measured.makespan_s == 3.0
    assert found.noise_floor_fraction == pytest.approx(1.5 / 11)
    assert (found.measurements, found.verdict) == (3, Verdict.WITHIN_NOISE)


def test_of_an_even_number_of_measurements_one_run_counts_and_not_a_mean_of_two() -> None:
    """Steps of 3.3 and 3.9: the lower median is 3.3, and every figure is that run's."""
    found = compare(run(GRAPH), [scaled(1.3), scaled(1.1)])

    assert found.step_error_fraction == pytest.approx(3 / 3.3 - 1)
    assert found.duration_error_fraction == pytest.approx(3 / 3.3 - 1)
    assert found.duration_error_by_kind == {"forward": pytest.approx(3 / 3.3 - 1), "backward": pytest.approx(3 / 3.3 - 1)}
    assert [row.ratio for row in found.ratios] == pytest.approx([1.1, 1.1])
    assert found.timelines[1].makespan_s == pytest.approx(3.3)


def test_an_error_below_the_noise_floor_is_within_noise() -> None:
    """Predicted 3, measured 2.97, 3.3, 3.63: error 3/3.3 - 1 = -1/11; floor, by the rule of test_noise_floor, 0.495/3.63."""
    found = compare(run(GRAPH), [scaled(0.99), scaled(1.1), scaled(1.21)])

    assert found.step_error_fraction == pytest.approx(-1 / 11)
    assert found.noise_floor_fraction == pytest.approx(0.495 / 3.63)
    assert found.verdict is Verdict.WITHIN_NOISE


def test_warm_up_is_left_out() -> None:
    found = compare(run(GRAPH), [scaled(5.0, warm_up=True), scaled(1.0, warm_up=False)])

    assert (found.measurements, found.step_error_fraction) == (1, 0.0)
    assert compare(run(GRAPH), scaled(5.0, warm_up=True)).measurements == 1


def test_contention_is_named() -> None:
    """gpipe p=2 m=2 over 4 mini-batches: tasks that overlap take 1.5 times as long, tasks that run alone do not."""
    graph = graph_of("gpipe", 2, 2, num_mini_batches=4)
    predicted = run(graph)
    offsets = {"0F0": (0, 1), "0F1": (1, 2.5), "1F0": (1, 2.5), "1F1": (2.5, 3.5)}
    offsets |= {"1B1": (3.5, 5.5), "1B0": (5.5, 8.5), "0B1": (5.5, 8.5), "0B0": (8.5, 10.5)}
    spans = {}
    for mini_batch in range(4):
        for label, (start, end) in offsets.items():
            at = 10.5 * mini_batch
            spans[f"{label[:2]}{int(label[2]) + 2 * mini_batch}"] = (at + start, at + end)
    found = compare(predicted, recorded(graph, spans))

    assert found.contention is not None
    assert "1.50 times as long while other devices compute as alone (F 1.50, B 1.50)" in found.contention
    assert compare(predicted, measured(predicted)).contention is None


def test_ratios_tell_stages_apart() -> None:
    graph = graph_of("1f1b", 2, 2)
    rows = {(row.kind, row.stage): row.ratio for row in compare(run(graph), measured(run(graph, slower={1: 2.0}))).ratios}

    assert rows == {("forward", 0): 1.0, ("forward", 1): 2.0, ("backward", 0): 1.0, ("backward", 1): 2.0}


def test_tasks_that_were_not_recorded_are_not_compared() -> None:
    found = compare(run(graph_of("1f1b", 2, 1), {Kind.UPDATE: 1.0}), two_devices_by_hand())

    assert {row.kind for row in found.ratios} == {"forward", "backward"}


def test_peaks_are_compared_where_both_sides_have_memory() -> None:
    timeline = run(graph_of("1f1b", 2, 1))
    memory = (memory_of((0.0, 110, 0)), memory_of((0.0, 100, 0)))
    predicted = Timeline(timeline.graph, timeline.start, timeline.end, Source.SIMULATED, memory=memory)
    found = compare(predicted, measured(timeline, memory=(memory_of((0.0, 100, 0)), memory_of((0.0, 125, 0)))))

    assert found.peak_bytes_error_fraction == (near(0.1), near(-0.2))
    assert compare(predicted, measured(timeline)).peak_bytes_error_fraction == ()


def test_timelines_of_different_graphs_are_refused() -> None:
    predicted = run(graph_of("1f1b", 2, 2))

    with pytest.raises(
        ArgumentError, match=r"timelines of different graphs cannot be compared: <Program 1f1b: .* against <Program gpipe"
    ):
        compare(predicted, run(graph_of("gpipe", 2, 2)))
    with pytest.raises(ArgumentError, match=r"recompute=.*'always'.*: predict what was measured"):
        compare(predicted, run(graph_of("1f1b", 2, 2, recompute="always")))
    with pytest.raises(ArgumentError, match="got no measured timeline"):
        compare(predicted, [])
    with pytest.raises(ArgumentError, match="has no spans"):
        compare(predicted, recorded(graph_of("1f1b", 2, 2), {}))


def test_graphs_compiled_twice_are_the_same() -> None:
    found = compare(run(graph_of("1f1b", 2, 2)), measured(run(graph_of("1f1b", 2, 2))))

    assert found.step_error_fraction == 0.0


def test_the_report_holds_both_sides_as_simulate_prints_them() -> None:
    """The keys of formats/README.md, row compare --json."""
    report = json.loads(json.dumps(compare_report(compare(run(GRAPH), [scaled(1.0), scaled(1.1), scaled(0.9)])), allow_nan=False))

    jsonschema.validate(report["predicted"], SCHEMA)
    jsonschema.validate(report["measured"], SCHEMA)
    assert report["schema"] == "schedir.compare/1"
    assert report["measured"]["engine"] is None
    assert report["step_error_fraction"] == 0.0
    assert report["noise_floor_fraction"] == 0.136364
    assert report["start_error_fraction"] == {"median": 0.0, "p95": 0.0, "max": 0.0}
    assert (report["order_agreement"], report["peak_bytes_error_fraction"]) == ([1.0], [])
    assert report["verdict"] == "within-noise"
    assert {
        "bubble_error_points",
        "duration_error_by_kind",
        "structural_error_fraction",
        "critical_path_overlap",
        "contention",
        "ratios",
    } <= set(report)


def test_two_predictions_are_reported_as_such() -> None:
    report = compare_report(compare(run(GRAPH), run(GRAPH)))

    assert report["sources"] == {"predicted": "simulated", "measured": "simulated"}


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 1e300])
@pytest.mark.parametrize("other", [0.0, 5e-324, 1.0, 1e300])
def test_no_figure_of_the_report_is_nan_or_infinite(seconds: float, other: float) -> None:
    one, two = (run(GRAPH, dict.fromkeys(Kind, value)) for value in (seconds, other))
    report = compare_report(compare(one, measured(two)))

    json.dumps(report["ratios"], allow_nan=False)
    json.dumps({key: value for key, value in report.items() if key not in {"predicted", "measured"}}, allow_nan=False)


def test_an_error_against_nothing_is_null() -> None:
    free = measured(run(GRAPH, dict.fromkeys(Kind, 0.0)))

    assert compare_report(compare(run(GRAPH), free))["step_error_fraction"] is None
    assert np.isinf(compare(run(GRAPH), free).step_error_fraction)


def test_transfers_that_overlap_on_a_link_are_no_structural_error() -> None:
    """gpipe p=2 m=3 with latency 2.5, measured without knowing when the links were free: the replay lets them overlap too."""
    predicted = run(graph_of("gpipe", 2, 3), latency=2.5)

    unknown = Timeline(predicted.graph, predicted.start, predicted.end, Source.MEASURED)
    assert compare(predicted, unknown).structural_error_fraction == pytest.approx(0.0)
