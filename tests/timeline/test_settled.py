import numpy as np
import pytest

from schedir.ir.action import Kind
from schedir.timeline.settled import settle
from schedir.timeline.timeline import Source, Timeline
from tests.timeline.build import graph_of, recorded, run, two_devices_by_hand


def times(timeline: Timeline) -> dict[str, tuple[float, float]]:
    settled = settle(timeline)
    graph = timeline.graph
    return {graph.label(task): (float(settled.start[task]), float(settled.end[task])) for task in range(graph.num_compute_tasks)}


def test_a_task_without_a_span_stands_behind_the_one_before_it() -> None:
    """D27: the updates were not recorded; 1f1b runs F, B, U on each device."""
    assert times(two_devices_by_hand()) == {
        "0F0": (0.0, 4.0),
        "0B0": (6.0, 8.0),
        "0U0": (8.0, 8.0),
        "1F0": (4.0, 5.0),
        "1B0": (5.0, 6.0),
        "1U0": (6.0, 6.0),
    }


def test_tasks_before_the_first_span_of_a_device_stand_at_its_start() -> None:
    assert times(recorded(graph_of("1f1b", 1, 1), {"0B0": (3.0, 5.0)}))["0F0"] == (3.0, 3.0)


def test_a_device_without_spans_does_nothing_at_the_start_of_the_run() -> None:
    found = times(recorded(graph_of("1f1b", 2, 1), {"0F0": (2.0, 3.0)}))

    assert found["1F0"] == found["1B0"] == (2.0, 2.0)


def test_transfers_without_a_span_arrive_when_their_sender_ends() -> None:
    settled = settle(two_devices_by_hand())
    transfers = np.flatnonzero(settled.graph.kind == Kind.TRANSFER)

    assert settled.start[transfers].tolist() == [4.0, 6.0]
    assert settled.end[transfers].tolist() == [4.0, 6.0]


def test_a_reduction_without_a_span_ends_with_the_last_gradient() -> None:
    """test_idle: replicas 2, 1; backwards of stage 0 end at 6 and 9, the reduction was not recorded."""
    graph = graph_of("pipedream", 3, 1, num_mini_batches=2, replicas=(2, 1))
    whole = run(graph)
    kept = graph.kind != Kind.REDUCE
    partly = Timeline(graph, np.where(kept, whole.start, np.nan), np.where(kept, whole.end, np.nan), Source.MEASURED)

    assert settle(partly).end[graph.kind == Kind.REDUCE].tolist() == [9.0]


def test_a_link_is_free_before_the_next_transfer_starts() -> None:
    """gpipe p=2 m=3, F=1, latency 2.5: F0 is under way in [1, 3.5], F1 from 2 on, so F0 held the link for 1 s at most."""
    predicted = run(graph_of("gpipe", 2, 3), latency=2.5)
    measured = Timeline(predicted.graph, predicted.start, predicted.end, Source.MEASURED)
    first = predicted.graph.num_compute_tasks

    assert settle(predicted).release[first : first + 3].tolist() == [1.0, 2.0, 3.0]
    assert settle(measured).release[first : first + 3].tolist() == [2.0, 3.0, 5.5]


@pytest.mark.parametrize("name", ["gpipe", "pipedream"])
def test_a_whole_timeline_is_taken_as_it_is(name: str) -> None:
    timeline = run(graph_of(name, 3, 2), latency=0.5)
    settled = settle(timeline)

    assert settled.start is timeline.start
    assert settled.end is timeline.end
    assert (settled.first, settled.last) == (0.0, timeline.makespan_s)
