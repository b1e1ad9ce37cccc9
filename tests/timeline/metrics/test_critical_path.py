from schedir.ir.action import Kind
from schedir.timeline.metrics.critical_path import critical_path, critical_tasks
from schedir.timeline.settled import settle
from tests.timeline.build import graph_of, run, two_devices_by_hand


def test_the_path_goes_up_through_the_stages_along_the_last_one_and_back() -> None:
    """formats/1f1b-4-8.simulate.json: 22 tasks, 11 s forward and 22 s backward, 24 s of them on the last device."""
    found = critical_path(settle(run(graph_of("1f1b", 4, 8))))

    assert found.tasks == 22
    assert found.seconds_by_kind == {"forward": 11.0, "backward": 22.0}
    assert found.seconds_by_device == (3.0, 3.0, 3.0, 24.0)
    assert found.transfer_s == 0.0


def test_an_overhead_per_task_is_paid_once_for_each_task_of_the_path() -> None:
    """D25: 0.1 per task makes 33 + 22 x 0.1 = 35.2."""
    slower = run(graph_of("1f1b", 4, 8), {Kind.FORWARD: 1.1, Kind.BACKWARD: 2.1})

    assert critical_path(settle(slower)).tasks == 22
    assert round(slower.makespan_s, 9) == 35.2


def test_tasks_are_named_from_the_first_to_the_last() -> None:
    timeline = run(graph_of("1f1b", 2, 1), latency=0.5)
    labels = [str(timeline.graph.task(task)) for task in critical_tasks(settle(timeline)).tolist()]

    assert labels == ["0F0", "0T0", "1F0", "1B0", "1T0", "0B0"]


def test_transfers_on_the_path_are_summed_apart() -> None:
    found = critical_path(settle(run(graph_of("1f1b", 2, 1), latency=0.5)))

    assert found.transfer_s == 1.0
    assert found.seconds_by_kind == {"forward": 2.0, "backward": 4.0}


def test_the_path_follows_a_transfer_that_queues_behind_another() -> None:
    """gpipe p=2 m=2, F=1 B=2, link occupied for 3 (see test_links): F0, both forward transfers, F1 B1 on device 1, its transfer in
    [10, 13], the other behind it in [13, 16], B0 on device 0 in [16, 18]."""
    found = critical_path(settle(run(graph_of("gpipe", 2, 2), {Kind.TRANSFER: 3.0})))

    assert found.transfer_s == 12.0
    assert found.seconds_by_kind == {"forward": 2.0, "backward": 4.0}


def test_reductions_are_on_the_path() -> None:
    """test_idle: the run with one reduction of 1 s ends with it, at 10."""
    graph = graph_of("pipedream", 3, 1, num_mini_batches=2, replicas=(2, 1))

    assert critical_path(settle(run(graph, {Kind.REDUCE: 1.0}))).seconds_by_kind["reduce"] == 1.0


def test_a_measured_path_leads_through_hand_overs_that_were_not_recorded() -> None:
    found = critical_path(settle(two_devices_by_hand()))

    assert found.tasks == 4
    assert found.seconds_by_device == (6.0, 2.0)
