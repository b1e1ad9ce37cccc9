import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from schedir.ir.action import Kind
from schedir.schedules.registry import SCHEDULES
from schedir.timeline.metrics.metrics import Percentiles, metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.timeline import Timeline
from tests.timeline.build import graph_near, graph_of, noisy, run, two_devices_by_hand
from tests.timeline.metrics.test_peaks import memory_of

DATA = Path(__file__).parents[2] / "data"
SCHEMA = json.loads((DATA / "simulate-1.schema.json").read_text(encoding="utf-8"))
EXAMPLE = json.loads((DATA / "1f1b-4-8.simulate.json").read_text(encoding="utf-8"))


def check(report: dict[str, Any]) -> None:
    """Hold a report, as it is read back from its text, against the schema."""
    jsonschema.validate(json.loads(json.dumps(report, allow_nan=False)), SCHEMA)


def test_the_report_of_the_published_example_is_equal() -> None:
    """formats/1f1b-4-8.simulate.json; costs and notes are what the cost model says of itself."""
    timeline = run(graph_of("1f1b", 4, 8), costs=EXAMPLE["costs"], notes=EXAMPLE["notes"])

    report = simulate_report(timeline)

    assert report == EXAMPLE
    assert list(report) == list(EXAMPLE)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("recompute", ["never", "except-last"])
def test_a_report_of_any_schedule_follows_the_schema(name: str, recompute: str) -> None:
    check(simulate_report(noisy(graph_near(name, 2, 3, recompute=recompute), seed=1)))


def test_a_measured_report_has_no_engine() -> None:
    report = simulate_report(two_devices_by_hand(engine="threads"))

    check(report)
    assert report["engine"] is None
    assert report["costs"] == {"basis": "measured"}


def test_bubble_and_busy_agree_to_a_millionth() -> None:
    """What check_values.py reads: |1 - sum of busy / (devices x makespan) - bubble_fraction| <= 1e-6."""
    report = simulate_report(noisy(graph_of("xpipe", 4, 3), seed=2))

    busy = sum(row["busy_s"] for row in report["devices"])
    assert 1 - busy / (4 * report["makespan_s"]) == pytest.approx(report["bubble_fraction"], abs=1e-6)


def test_float_noise_is_not_printed() -> None:
    """1f1b p=4 m=8 with transfers of 0.1 takes 33 + 16 x 0.1 = 34.6 (schedule_values.json), in floats 34.60000000000001."""
    report = simulate_report(run(graph_of("1f1b", 4, 8), latency=0.1))

    assert report["makespan_s"] == 34.6
    assert report["critical_path"]["transfer_s"] == 1.6
    assert report["devices"][0]["idle_by_cause_s"] == {
        "start_up": 0.0,
        "drain": 0.0,
        "dependency": 9.9,
        "transfer": 0.7,
        "reduce": 0.0,
    }


def test_runs_of_microseconds_keep_their_digits() -> None:
    """p=1 m=1: F + B = 3.000000000003 µs, thirteen digits, of which twelve are significant."""
    report = simulate_report(run(graph_of("1f1b", 1, 1), {Kind.FORWARD: 1e-6, Kind.BACKWARD: 2.000000000003e-6}))

    assert report["makespan_s"] == 3e-6
    assert (
        simulate_report(run(graph_of("1f1b", 1, 1), {Kind.FORWARD: 1.23456789e-6, Kind.BACKWARD: 0.0}))["makespan_s"]
        == 1.23456789e-6
    )


def test_devices_of_replicas_and_tensor_parallel_groups_are_all_counted() -> None:
    report = simulate_report(
        run(graph_of("1f1b", 4, 8), data_parallel=2, tensor_parallel=8, micro_batch_size=1, mini_batch_size=16)
    )

    check(report)
    assert report["total_devices"] == 64
    assert (report["micro_batch_size"], report["mini_batch_size"]) == (1, 16)
    assert report["samples_per_s"] == pytest.approx(16 / 33)


def test_memory_stands_in_the_rows_of_devices() -> None:
    graph = graph_of("1f1b", 2, 1)
    predicted = run(graph, limit_bytes=(200, 40))
    steps = (memory_of((0.0, 100, 0), (1.0, 100, 30)), memory_of((0.0, 50, 0)))
    report = simulate_report(Timeline(graph, predicted.start, predicted.end, predicted.source, memory=steps, meta=predicted.meta))

    check(report)
    assert (report["peak_bytes"], report["peak_device"], report["fits"]) == (130, 0, False)
    assert report["verdict"].startswith("device 1: 50 B > 40 B: weights 50 B at 0 s: ")
    assert report["devices"][0]["peak_at_s"] == 1.0
    assert report["devices"][0]["peak_bytes_by_class"]["activations"] == 30
    assert [row["fits"] for row in report["devices"]] == [True, False]


def test_percentiles_of_noise_stand_in_the_report() -> None:
    timeline = run(graph_of("1f1b", 2, 2), seed=3)
    values = {"mean": 9.0, "p50": 9.0, "p95": 10.0, "p99": 11.0}
    report = simulate_report(timeline, metrics(timeline, percentiles=Percentiles(200, 3, values, values)))

    check(report)
    assert report["percentiles"]["samples"] == 200
    assert report["seed"] == 3


def test_an_infinite_overhead_is_said_in_the_notes() -> None:
    report = simulate_report(run(graph_of("1f1b", 2, 1), dict.fromkeys(Kind, 0.0), latency=1.0))

    check(report)
    assert report["bubble_overhead"] == 0.0
    assert "bubble_overhead is infinite" in report["notes"][-1]
