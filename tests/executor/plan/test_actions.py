"""What an action knows of the weights that it and others read."""

from executor.plan.actions import PlannedAction, planned_actions
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from tests.executor.small.models import compiled


def on_stage(graph: TaskGraph, stage: int, kind: Kind) -> list[PlannedAction]:
    return [action for action in planned_actions(graph) if (action.stage, action.kind) == (stage, kind)]


def test_an_update_keeps_the_version_before_it_only_where_somebody_reads_it_later() -> None:
    # pipedream, p = 2, stage 0:   F0 F1 B0 U F2 B1 U F3 B2 U B3 U, with the version of its forward each
    #                              0  0  0    1  0    2  1    2         update 1 makes 1: B1 still reads 0, and so on to the drain
    graph = compiled("pipedream", 2, 1, num_mini_batches=4)
    assert [action.keeps_previous for action in on_stage(graph, 0, Kind.UPDATE)] == [True, True, True, False]
    assert [action.keeps_previous for action in on_stage(graph, 1, Kind.UPDATE)] == [False, False, False, False]


def test_under_a_flush_every_update_is_made_in_place() -> None:
    graph = compiled("1f1b", 2, 4, num_mini_batches=3)
    assert not any(action.keeps_previous for stage in (0, 1) for action in on_stage(graph, stage, Kind.UPDATE))


def test_one_reader_of_every_set_is_its_last() -> None:
    graph = compiled("pipedream", 3, 1, num_mini_batches=5)
    last = [action for action in planned_actions(graph) if action.last_reader]
    assert len({(action.stage, *action.weights) for action in last}) == len(last)
    # stage 0 reads the versions 0 to 2 at p - 1 = 2 behind: 0 by the forwards of three mini-batches, whose backwards end with B2
    assert [(action.version, action.kind, action.micro_batch) for action in last if action.stage == 0] == [
        (0, Kind.BACKWARD, 2),
        (1, Kind.BACKWARD, 3),
        (2, Kind.BACKWARD, 4),
    ]


def test_the_forward_that_records_knows_that_its_backward_reads_other_weights() -> None:
    # pipedream with the weights that are current: F(2) reads version 0 on stage 0, B(2) the version that updates have made since
    graph = compiled("pipedream", 3, 1, num_mini_batches=5, weights="current")
    assert [action.swapped for action in on_stage(graph, 0, Kind.FORWARD)] == [False, True, True, True, True]
    assert not any(action.swapped for action in on_stage(graph, 2, Kind.FORWARD))


def test_the_last_update_of_a_stage_knows_that_none_follows() -> None:
    graph = compiled("gpipe", 2, 2, num_mini_batches=3)
    assert [action.last_update for action in on_stage(graph, 1, Kind.UPDATE)] == [False, False, True]
