"""What holds for the timelines of all registered schedules, whatever tasks cost and whichever of them were recorded."""

import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from jsonschema import Draft202012Validator

from schedir.compiler import load_timeline
from schedir.ir.action import Kind
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.timeline.comparison.compare import Verdict, compare
from schedir.timeline.comparison.report import compare_report
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Source, Timeline
from schedir.timeline.trace.events import all_events
from schedir.timeline.trace.trace import write_trace
from tests.strategies import graphs
from tests.timeline.metrics.test_report import SCHEMA
from tests.timeline.trace.test_events import assert_disjoint_or_nested
from tests.timeline.trace.test_trace import assert_same

VALIDATOR = Draft202012Validator(SCHEMA)
CAUSES = ("start_up", "drain", "dependency", "transfer", "reduce")
KINDS = ("forward", "backward", "input_grad", "weight_grad", "overlapped", "recompute", "update", "predict")


@st.composite
def predictions(draw: DrawFn) -> Timeline:
    """Draw a simulated timeline whose tasks take 0 to 2 s, its transfers with latency or on occupied links."""
    graph = draw(graphs(most_devices=4, most_tasks=200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    duration = rng.choice([0.0, 0.1, 1 / 3, 1.0, 2.0], graph.num_tasks)
    latency = np.where(graph.kind == Kind.TRANSFER, draw(st.sampled_from([0.0, 0.1, 3.0])), 0.0)
    spans = evaluate(graph, TaskTimes(duration, latency, draw(st.sampled_from([0.0, 0.05]))))
    return Timeline(graph, spans.start, spans.end, Source.SIMULATED, spans.release, meta={"engine": "in-order"})


@st.composite
def measurements(draw: DrawFn) -> Timeline:
    """Draw a measured timeline of which some spans were not recorded."""
    predicted = draw(predictions())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kept = rng.random(predicted.graph.num_tasks) < draw(st.sampled_from([0.3, 0.9, 1.0]))
    kept[rng.integers(len(kept))] = True
    start, end = (np.where(kept, column + 1000.0, np.nan) for column in (predicted.start, predicted.end))
    return Timeline(predicted.graph, start, end, Source.MEASURED, meta={"workers": "threads"})


@given(predictions() | measurements())
def test_kinds_sum_to_busy_and_causes_to_idle(timeline: Timeline) -> None:
    found = metrics(timeline)
    close = 1e-9 * max(found.makespan_s, 1.0) + 1e-9

    for row in found.devices:
        causes = [getattr(row.idle_by_cause_s, cause) for cause in CAUSES]
        assert sum(getattr(row, f"{kind}_s") for kind in KINDS) == pytest.approx(row.busy_s, abs=close)
        assert row.busy_s + row.idle_s == pytest.approx(found.makespan_s, abs=close)
        assert sum(causes) == pytest.approx(row.idle_s, abs=close)
        assert min(causes) >= -close
    assert min(row.imbalance_s for row in found.devices) == 0.0


@given(predictions() | measurements())
def test_reports_follow_the_schema_and_agree_with_their_rows(timeline: Timeline) -> None:
    text = json.dumps(simulate_report(timeline), allow_nan=False)
    report = json.loads(text)

    assert "-0.0," not in text
    VALIDATOR.validate(report)
    busy = sum(row["busy_s"] for row in report["devices"])
    if report["makespan_s"] > 0:
        bubble = 1 - busy / (len(report["devices"]) * report["makespan_s"])
        assert report["bubble_fraction"] == pytest.approx(bubble, abs=1e-6)


@given(predictions())
def test_the_critical_path_is_as_long_as_the_run_without_its_gaps(timeline: Timeline) -> None:
    found = metrics(timeline)
    length = sum(found.critical_path.seconds_by_kind.values()) + found.critical_path.transfer_s

    assert length <= found.makespan_s + 1e-9
    assert length + 0.05 * timeline.graph.num_compute_tasks >= found.makespan_s - 1e-9
    assert found.recompute_overhead_s >= -1e-9


@given(predictions() | measurements())
def test_planners_get_the_same_step_as_the_figures(timeline: Timeline) -> None:
    assert step_seconds(timeline) == metrics(timeline).step_s


@given(predictions() | measurements())
def test_traces_come_back_without_loss(timeline: Timeline) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        write_trace(path, timeline)
        assert_same(load_timeline(path), timeline)


@given(predictions() | measurements())
def test_slices_are_disjoint_or_nested_and_arrows_hold_on_to_them(timeline: Timeline) -> None:
    events = all_events([timeline, timeline])
    assert_disjoint_or_nested(events)
    slices = defaultdict(list)
    for event in events:
        assert event["pid"] >= 1
        assert event["tid"] >= 1
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            slices[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    starts = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    for event in events:
        if event["ph"] in ("s", "f"):
            at = round(event["ts"] * 1000)
            assert any(start <= at < end for start, end in slices[event["pid"], event["tid"]])
            assert starts[event["id"]] <= event["ts"]


@given(predictions())
def test_a_prediction_that_came_true_has_no_error(timeline: Timeline) -> None:
    measured = Timeline(timeline.graph, timeline.start, timeline.end, Source.MEASURED, timeline.release)
    found = compare(timeline, measured)

    assert (found.step_error_fraction, found.bubble_error_points, found.verdict) == (0.0, 0.0, Verdict.WITHIN_NOISE)
    assert set(found.order_agreement) == {1.0}
    assert found.critical_path_overlap == pytest.approx(1.0)


@given(predictions(), st.data())
def test_any_measurement_of_a_graph_can_be_compared(timeline: Timeline, data: st.DataObject) -> None:
    """The report is JSON without NaN and the step's error the product of its parts, where both have a length."""
    factor = data.draw(st.sampled_from([0.5, 1.0, 2.0]))
    slower = Timeline(timeline.graph, timeline.start * factor, timeline.end * factor, Source.MEASURED)
    found = compare(timeline, slower)

    json.dumps(compare_report(found), allow_nan=False)
    if timeline.makespan_s > 0:
        assert found.step_error_fraction == pytest.approx(1 / factor - 1)
        whole = (1 + found.duration_error_fraction) * (1 + found.structural_error_fraction)
        assert whole == pytest.approx(1 / factor)
