"""What is said of schedules of two directions beside a search."""

import pytest

from schedir.search.judge import Judge
from schedir.search.problem.problem import Backward
from schedir.search.search import search_order
from schedir.search.two_ways import two_way_notes
from tests.search.problems import problem_of


def test_chimera_is_told_of_where_it_is_shorter_than_orders_with_a_stage_on_one_device() -> None:
    """p = m = 4, F = 1, B = 2: Chimera takes 16 (its paper, figure 2), whole backwards on one device each (m + p - 1) x 3 = 21."""
    found = search_order(problem_of(4, 4, times={"forward": 1, "backward": 2}), iterations=300)

    assert found.best.value == 21
    assert found.two_ways[0].startswith("chimera takes 16 s, shorter: in two directions each stage stands on two devices")


def test_of_several_stages_a_device_it_is_said_that_they_cut_the_model_otherwise() -> None:
    problem = problem_of(2, 4, stages_per_device=2)

    assert two_way_notes(problem, Judge(problem), 1.0) == (
        "schedules of two directions (chimera, dualpipe) are not compared: they cut the model into other stages",
    )


@pytest.mark.parametrize(
    ("devices", "micro_batches", "options"),
    [(1, 4, {}), (3, 4, {}), (4, 3, {}), (4, 4, {"live": 1}), (4, 4, {"backward": Backward.SPLIT})],
)
def test_nothing_is_said_where_none_takes_the_shape_the_limit_and_what_is_asked_for(
    devices: int, micro_batches: int, options: dict[str, object]
) -> None:
    problem = problem_of(devices, micro_batches, **options)  # type: ignore[arg-type] # options of any type

    assert two_way_notes(problem, Judge(problem), 1.0) == ()
