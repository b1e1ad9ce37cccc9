"""What passes gave: losses and timelines of all processes, exchanged as seldom as may be."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from executor.run.results import PassPart, PassResults
from executor.workers.team import PassTimes
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from tests.executor.small.models import compiled


class Team:
    """This process and another that has computed the losses of the other micro-batches; writes down what is exchanged."""

    def __init__(self, num_processes: int = 2, *, other_data: int = 0) -> None:
        self.num_processes, self._other_data = num_processes, other_data
        self.exchanged: list[tuple[str, int]] = []
        """(about, passes)."""

    def taken(self, read: Any) -> PassTimes:
        start, end = read()
        return PassTimes(start, end, {"workers": "doubles"})

    def of_all(self, about: str, parts: list[PassPart]) -> list[list[PassPart]]:
        self.exchanged.append((about, len(parts)))
        others = [PassPart([0.5 if share == 0 else 0.0 for share in part.shares], part.data + self._other_data) for part in parts]
        return [parts, others][: self.num_processes]

    def merged(self, about: str, graph: TaskGraph, passes: list[PassTimes]) -> list[PassTimes]:  # noqa: ARG002 - one signature for all
        return list(passes)


def feed_of(*shares: float) -> Any:
    return SimpleNamespace(micro_batches=(), shares=lambda: list(shares))


def results_of(graph: TaskGraph, team: Team) -> PassResults:
    return PassResults(graph, team, seed=7)  # type: ignore[arg-type]  # as much of a team as is asked


def noted(graph: TaskGraph, team: Team, passes: int) -> PassResults:
    """Return the results of passes whose own shares are 1, 2, 3, … for the first micro-batch, unknown for the second."""
    results = results_of(graph, team)
    for number in range(1, passes + 1):
        results.note(feed_of(float(number), 0.0), lambda: (np.arange(graph.num_tasks), np.arange(graph.num_tasks) + 1))
    return results


SMALL = compiled("gpipe", 1, 2)


def test_one_process_knows_a_pass_as_soon_as_it_has_ended() -> None:
    results = noted(SMALL, team := Team(1), 3)

    assert team.exchanged == [("end of pass 1", 1), ("end of pass 2", 1), ("end of pass 3", 1)]
    assert results.losses == [1.0, 2.0, 3.0]


def test_several_exchange_behind_the_first_pass_then_as_seldom_as_passes_may_be_kept() -> None:
    """64 passes of few tasks; an exchange is a round trip for which all devices stand still."""
    results = noted(SMALL, team := Team(), 1 + 64 + 2)
    assert team.exchanged == [("end of pass 1", 1), ("end of pass 65", 64)]
    assert len(results.losses) == len(results.timelines) == 65
    results.exchange()
    results.exchange()  # there is nothing new

    assert team.exchanged[2:] == [("end of pass 67", 2)]
    assert results.losses == [number + 0.5 for number in range(1, 68)]


def test_passes_of_many_tasks_are_kept_for_less_long() -> None:
    """Two times of 8 bytes a task, 2^20 bytes in all: 5 passes of 12,600 tasks, whose times take 201,600 bytes each."""
    graph = compiled("gpipe", 2, 2100)
    assert graph.num_tasks == 4 * 2100 + 2 * 2100 + 2
    team = Team()
    results = results_of(graph, team)
    for _ in range(11):
        results.note(feed_of(*[1.0] * 2100), lambda: (np.arange(graph.num_tasks), np.arange(graph.num_tasks) + 1))

    assert team.exchanged == [("end of pass 1", 1), ("end of pass 6", 5), ("end of pass 11", 5)]


def test_a_loss_is_the_sum_over_a_mini_batch_s_micro_batches_of_what_any_process_knows() -> None:
    """Two mini-batches a pass: micro-batches 0 and 1, then 2 and 3."""
    graph = compiled("1f1b", 1, 2, num_mini_batches=2)
    results = results_of(graph, Team())
    for _ in range(2):
        results.note(feed_of(1.0, 0.0, 4.0, 0.0), lambda: (np.arange(graph.num_tasks), np.arange(graph.num_tasks) + 1))
    results.exchange()

    assert results.losses == [1.5, 4.5, 1.5, 4.5]
    assert [
        (timeline.meta["pass"], timeline.meta["first_mini_batch"], timeline.meta["warm_up"], timeline.meta["seed"])
        for timeline in results.timelines
    ] == [(0, 0, True, 7), (1, 2, False, 7)]
    assert results.timelines[0].meta["workers"] == "doubles"


def test_a_timeline_has_the_times_of_its_pass_in_seconds_from_the_first_start() -> None:
    """Task k starts at 5 + k s and takes 1/2 s."""
    results = results_of(SMALL, Team(1))
    start = 1_000_000_000 * (5 + np.arange(SMALL.num_tasks))
    results.note(feed_of(1.0, 1.0), lambda: (start, start + 500_000_000))
    (timeline,) = results.timelines

    assert timeline.start == pytest.approx(np.arange(SMALL.num_tasks))
    assert timeline.end == pytest.approx(np.arange(SMALL.num_tasks) + 0.5)


def test_a_process_that_has_read_other_data_is_named() -> None:
    with pytest.raises(ArgumentError, match="process 1 has trained on other data than process 0: let every process read the same"):
        noted(SMALL, Team(other_data=1), 1)
