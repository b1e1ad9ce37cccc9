"""Which registered schedules a search competes with."""

import pytest

from schedir.search.problem.problem import Backward, Problem, StagePlacement
from schedir.search.problem.tables import tables_of
from schedir.search.registered import registered_programs
from tests.search.problems import problem_of

WHOLE = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs"}
"""Of one stage per device the two loops are 1F1B and GPipe again."""
SPLIT = {"zb-h1", "zb-h2", "interleaved-zb"}


def names_of(problem: Problem, placement: StagePlacement = StagePlacement.LOOP) -> set[str]:
    return {program.name for program in registered_programs(problem, placement, tables_of(problem, placement))}


@pytest.mark.parametrize(
    ("backward", "names"),
    [(None, WHOLE | SPLIT), (Backward.SPLIT, SPLIT), (Backward.WHOLE, WHOLE)],
)
def test_schedules_compete_if_they_run_backwards_as_asked(backward: Backward | None, names: set[str]) -> None:
    assert names_of(problem_of(3, 4, backward=backward)) == names


def test_costs_without_halves_leave_whole_backwards() -> None:
    assert names_of(problem_of(3, 4, times={"backward": 2})) == WHOLE


def test_schedules_compete_on_their_own_placement() -> None:
    problem = problem_of(2, 4, stages_per_device=2)

    assert names_of(problem, StagePlacement.V) == {"zb-v", "v-half", "dualpipev", "hanayo"}
    assert names_of(problem, StagePlacement.LOOP) == {"interleaved-1f1b", "looped-bfs", "interleaved-zb"}
