from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.program import Program
from schedir.schedules.registry import SCHEDULES
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.timeline import MemoryClass, MemorySteps, Source, Timeline
from schedir.timeline.trace.events import all_events
from tests.timeline.build import graph_near, graph_of, noisy, recorded, run, two_devices_by_hand
from tests.timeline.metrics.test_peaks import memory_of

Event = dict[str, Any]


def phase(events: Iterable[Event], letter: str) -> list[Event]:
    return [event for event in events if event["ph"] == letter]


def names(events: Iterable[Event], what: str) -> dict[tuple[int, int], Any]:
    return {
        (event["pid"], event["tid"]): event["args"].get("name", event["args"].get("sort_index"))
        for event in phase(events, "M")
        if event["name"] == what
    }


def assert_disjoint_or_nested(events: Iterable[Event]) -> None:
    lanes = defaultdict(list)
    for event in phase(events, "X"):
        start = round(event["ts"] * 1000)
        lanes[event["pid"], event["tid"]].append((start, -(start + round(event["dur"] * 1000))))
    for slices in lanes.values():
        open_ends: list[int] = []
        for start, end in sorted(slices):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or -end <= open_ends[-1]
            open_ends.append(-end)


def measured(timeline: Timeline) -> Timeline:
    return Timeline(timeline.graph, timeline.start, timeline.end, Source.MEASURED, timeline.release)


def test_slices_of_a_part_of_a_run_are_numbered_as_that_is() -> None:
    """Mini-batches 7 and 8 of a run with two micro-batches each."""
    timeline = replace(run(graph_of("gpipe", 2, 2, num_mini_batches=2)), meta={"first_mini_batch": 7})
    slices = phase(all_events([timeline]), "X")

    assert {(s["args"]["mini_batch"], s["args"]["micro_batch"]) for s in slices} == {(7, 14), (7, 15), (8, 16), (8, 17)}
    assert {s["name"] for s in slices if s["name"].startswith("F")} == {"F14", "F15", "F16", "F17"}


def test_a_run_by_hand_becomes_these_slices() -> None:
    """D27 in microseconds: device 0 in [0, 4] and [6, 8] s, device 1 in [4, 6]."""
    slices = [(s["name"], s["pid"], s["tid"], s["ts"], s["dur"]) for s in phase(all_events([two_devices_by_hand()]), "X")]

    assert slices == [
        ("F0", 1, 1, 0.0, 4e6),
        ("B0", 1, 1, 6e6, 2e6),
        ("F0", 2, 2, 4e6, 1e6),
        ("B0", 2, 2, 5e6, 1e6),
    ]


def test_arguments_say_which_weights_a_task_reads() -> None:
    """xpipe p=2 T=1: at F2 stage 0 has had one update and predicts ahead; its prediction stands in front."""
    events = phase(all_events([run(graph_of("xpipe", 2, 1, num_mini_batches=5))]), "X")
    forward = next(event for event in events if event["name"] == "F2" and event["pid"] == 1)

    assert (forward["args"]["stage"], forward["args"]["micro_batch"], forward["args"]["mini_batch"]) == (0, 2, 2)
    assert forward["args"]["version"] == 1
    assert forward["args"]["horizon"] >= 1
    assert forward["cat"] == "user_annotation"


@pytest.mark.parametrize("name", SCHEDULES)
def test_slices_of_a_lane_are_disjoint_or_nested(name: str) -> None:
    """D26 over all schedules, with transfers that overlap on their links."""
    timeline = noisy(graph_near(name, 3, 4, recompute="always"), seed=11)
    events = all_events([timeline, measured(timeline)])

    assert_disjoint_or_nested(events)
    assert len(phase(events, "X")) == 2 * timeline.graph.num_tasks


def test_measured_tasks_that_overlap_on_a_device_get_another_row() -> None:
    """D26, case A, in seconds: F0 in [3, 6.776], B0 in [5, 7]."""
    events = all_events([recorded(graph_of("1f1b", 1, 1), {"0F0": (3.0, 6.776), "0B0": (5.0, 7.0)})])

    assert [(event["name"], event["tid"]) for event in phase(events, "X")] == [("F0", 1), ("B0", 2)]
    assert names(events, "thread_name") == {(1, 1): "compute", (1, 2): "compute (2)"}


def test_transfers_under_way_together_get_rows_of_their_own() -> None:
    """gpipe p=2 m=3, F=1, latency 2.5: transfers in [1, 3.5], [2, 4.5], [3, 5.5] overlap, the fourth direction not."""
    events = all_events([run(graph_of("gpipe", 2, 3), latency=2.5)])
    sent = [(event["name"], event["tid"], event["ts"]) for event in phase(events, "X") if event["pid"] == 1 and event["tid"] > 1]

    assert sent == [("TF0", 2, 1e6), ("TF1", 3, 2e6), ("TF2", 4, 3e6)]
    assert names(events, "thread_name")[1, 4] == "to device 1 (3)"
    assert_disjoint_or_nested(events)


def test_an_overlapped_pair_is_one_slice() -> None:
    pair = Overlapped(Action(0, Kind.FORWARD, 1), Action(0, Kind.BACKWARD, 0))
    order: list[Entry] = [Action(0, Kind.FORWARD, 0), pair, Action(0, Kind.BACKWARD, 1)]
    graph = compile_program(Program.from_orders("pair", [order], num_stages=1, num_micro_batches=2))
    both = phase(all_events([run(graph)]), "X")[1]

    assert (both["name"], both["dur"]) == ("F&B1", 3e6)
    assert both["args"]["actions"] == "(0F1;0B0)OVERLAP_F_B"


LETTERS = {
    "F": "forward",
    "B": "backward",
    "I": "input_grad",
    "W": "weight_grad",
    "F&B": "overlapped",
    "F&I": "overlapped",
    "R": "recompute",
    "U": "update",
    "P": "predict",
}
"""What slices are called, and the kind that devices are busy with."""


def sums_by_kind(timeline: Timeline) -> dict[tuple[int, str], float]:
    """Return seconds of compute by device and kind, from the slices' names."""
    sums: dict[tuple[int, str], float] = defaultdict(float)
    for event in phase(all_events([timeline]), "X"):
        letters = event["name"].rstrip("0123456789")
        if letters in LETTERS:
            sums[event["pid"] - 1, LETTERS[letters]] += event["dur"] * 1e-6
    return sums


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_durations_sum_to_the_busy_time_of_every_kind(name: str, recompute: str) -> None:
    """D26: sum of durations per kind in the file = busy time; each slice is rounded to a nanosecond."""
    timeline = noisy(graph_near(name, 2, 3, recompute=recompute), seed=4)
    sums = sums_by_kind(timeline)

    for row in metrics(timeline).devices:
        for kind in set(LETTERS.values()):
            assert sums[row.device, kind] == pytest.approx(getattr(row, f"{kind}_s"), rel=0, abs=1e-7)
        assert sum(sums[row.device, kind] for kind in set(LETTERS.values())) == pytest.approx(row.busy_s, rel=0, abs=1e-7)


def test_the_slices_of_overlapped_pairs_and_halves_sum_to_what_stands_in_the_order() -> None:
    """DualPipe p=4 m=8, counted in the order drawn in its module: 5 F, 3 pairs; outer devices 2 B, 3 I, 3 W, inner ones 3, 2, 2."""
    graph = graph_of("dualpipe", 4, 8)
    seconds = {Kind.FORWARD: 2.0, Kind.BACKWARD: 2.25, Kind.INPUT_GRAD: 1.5, Kind.WEIGHT_GRAD: 0.75, Kind.OVERLAPPED: 3.5}
    sums = sums_by_kind(run(graph, seconds))
    outer = {"forward": 10.0, "overlapped": 10.5, "backward": 4.5, "input_grad": 4.5, "weight_grad": 2.25}
    inner = {"forward": 10.0, "overlapped": 10.5, "backward": 6.75, "input_grad": 3.0, "weight_grad": 1.5}

    for device, expected in enumerate([outer, inner, inner, outer]):
        assert {kind: sums[device, kind] for kind in expected} == pytest.approx(expected, rel=0, abs=1e-7)


def test_the_slices_of_a_split_backward_sum_to_its_halves() -> None:
    """ZB-H1 p=3 m=4: every device runs 4 F, 4 I and 4 W."""
    sums = sums_by_kind(run(graph_of("zb-h1", 3, 4), {Kind.FORWARD: 2.0, Kind.INPUT_GRAD: 1.5, Kind.WEIGHT_GRAD: 0.75}))

    for device in range(3):
        found = [sums[device, kind] for kind in ("forward", "input_grad", "weight_grad", "backward")]
        assert found == pytest.approx([8.0, 6.0, 3.0, 0.0], rel=0, abs=1e-7)


def test_flows_lead_from_inside_a_slice_to_the_start_of_another() -> None:
    events = all_events([run(graph_of("1f1b", 2, 1), latency=0.5)])
    slices = {(s["pid"], s["tid"], s["name"]): s for s in phase(events, "X")}
    arrows = list(zip(phase(events, "s"), phase(events, "f"), strict=True))
    ends = [((s["pid"], s["tid"]), (f["pid"], f["tid"]), s["name"]) for s, f in arrows]

    assert sorted(ends) == [
        ((1, 1), (1, 2), "activation"),
        ((1, 2), (2, 3), "activation"),
        ((2, 3), (2, 4), "gradient"),
        ((2, 4), (1, 1), "gradient"),
    ]
    for begin, finish in arrows:
        assert begin["id"] == finish["id"]
        assert finish["bp"] == "e"
        source = next(
            s
            for key, s in slices.items()
            if key[:2] == (begin["pid"], begin["tid"]) and s["ts"] <= begin["ts"] < s["ts"] + s["dur"]
        )
        assert begin["ts"] == pytest.approx(source["ts"] + source["dur"] - 0.001, abs=1e-6)
        assert any(s["ts"] == finish["ts"] for key, s in slices.items() if key[:2] == (finish["pid"], finish["tid"]))


def test_flows_pass_by_transfers_that_take_no_time() -> None:
    events = all_events([run(graph_of("1f1b", 2, 1))])

    assert [(s["pid"], f["pid"]) for s, f in zip(phase(events, "s"), phase(events, "f"), strict=True)] == [(2, 1), (1, 2)]
    assert {event["tid"] for event in phase(events, "X")} == {1, 2}


def test_every_flow_of_a_file_has_its_own_number() -> None:
    timeline = run(graph_of("1f1b", 3, 2))
    ids = [event["id"] for event in phase(all_events([timeline, measured(timeline)]), "s")]

    assert len(ids) == len(set(ids)) == 2 * 2 * 2 * 2


def test_replicas_wait_for_a_reduction_with_arrows() -> None:
    graph = graph_of("pipedream", 3, 1, num_mini_batches=2, replicas=(2, 1))
    events = all_events([run(graph, {Kind.REDUCE: 1.0, Kind.UPDATE: 1.0})])

    assert "reduce stage 0" in names(events, "thread_name").values()
    assert sum(event["name"] == "reduction" for event in phase(events, "s")) == 4


def test_processes_are_devices_and_threads_have_numbers_of_their_own() -> None:
    """Notes on timelines: viewers mix up the names of process 0, thread 0 and of threads with the same number."""
    timeline = run(graph_of("1f1b", 2, 2), latency=0.1)
    events = all_events([timeline, measured(timeline)])

    assert names(events, "process_name") == {
        (1, 1): "device 0 simulated",
        (2, 3): "device 1 simulated",
        (3, 5): "device 0 measured",
        (4, 7): "device 1 measured",
    }
    threads = {(1, 1): "compute", (1, 2): "to device 1", (2, 3): "compute", (2, 4): "to device 0"}
    threads |= {(3, 5): "compute", (3, 6): "to device 1", (4, 7): "compute", (4, 8): "to device 0"}
    assert names(events, "thread_name") == threads
    assert names(events, "thread_sort_index") == {key: key[1] for key in threads}


def test_prediction_and_measurement_stand_device_by_device() -> None:
    timeline = run(graph_of("1f1b", 2, 2))
    order = names(all_events([timeline, measured(timeline)]), "process_sort_index")

    assert {pid: index for (pid, _), index in order.items()} == {1: 0, 3: 1, 2: 2, 4: 3}


def test_one_timeline_needs_no_source_in_its_names() -> None:
    assert set(names(all_events([run(graph_of("1f1b", 2, 2))]), "process_name").values()) == {"device 0", "device 1"}


def test_timelines_of_one_source_are_numbered() -> None:
    timeline = run(graph_of("1f1b", 1, 1))

    assert set(names(all_events([timeline, timeline]), "process_name").values()) == {"device 0 simulated 1", "device 0 simulated 2"}


def test_memory_is_counted_by_class_and_process() -> None:
    predicted = run(graph_of("1f1b", 2, 1))
    memory = (memory_of((0.0, 100, 0), (1.0, 100, 30), (1.0, 100, 20)), memory_of((0.0, 50, 0)))
    events = all_events([Timeline(predicted.graph, predicted.start, predicted.end, Source.SIMULATED, memory=memory)])

    assert [(event["pid"], event["ts"], event["args"]) for event in phase(events, "C")] == [
        (1, 0.0, {"weights": 100, "activations": 0}),
        (1, 1e6, {"weights": 100, "activations": 20}),
        (2, 0.0, {"weights": 50}),
    ]


def test_memory_held_before_the_first_task_is_counted_from_its_start() -> None:
    """The run's clock stands at 3 s when its first task starts, and the weights were there at 0 s."""
    timeline = run(graph_of("1f1b", 2, 1))
    later = replace(timeline, start=timeline.start + 3.0, end=timeline.end + 3.0, memory=(memory_of((0.0, 8, 0)),) * 2)

    assert {event["ts"] for event in phase(all_events([later]), "C")} == {0.0}


def test_a_device_without_memory_steps_has_no_counter() -> None:
    predicted = run(graph_of("1f1b", 1, 1))
    empty = MemorySteps(np.zeros(0), np.zeros((0, len(MemoryClass)), np.int64))

    assert (
        phase(all_events([Timeline(predicted.graph, predicted.start, predicted.end, Source.SIMULATED, memory=(empty,))]), "C") == []
    )


def test_times_count_from_the_first_start() -> None:
    late = recorded(graph_of("1f1b", 1, 1), {"0F0": (1000.0, 1001.0), "0B0": (1001.0, 1003.0)})

    assert [event["ts"] for event in phase(all_events([late]), "X")] == [0.0, 1e6]
