"""One placement of a search: what the exact ledger finds beyond the limits makes less room, and only orders that fit it stay."""

import random

from schedir.costs.files.costs_file import load_costs
from schedir.search.branch import Branch
from schedir.search.judge import Judge
from schedir.search.problem.problem import Limits, Problem, StagePlacement
from schedir.search.problem.room import fits
from tests.repository import ROOT
from tests.search.problems import problem_of

COSTS = ROOT / "tests" / "data" / "stages.costs.toml"


def never() -> bool:
    return False


def test_what_was_found_beyond_the_limits_makes_less_room() -> None:
    problem = Problem(num_devices=4, num_micro_batches=6, costs=load_costs(COSTS), limits=Limits(bytes=40e9))
    branch = Branch(problem, StagePlacement.LOOP, Judge(problem))
    branch.enter_listed(random.Random(0), never)
    (before,) = branch.room
    excess = (1_000_000_000, 0, 2_000_000_000, 0)

    branch.tighten(excess, random.Random(0), never)

    (room,) = branch.room
    assert room.most == tuple(most - over for most, over in zip(before.most, excess, strict=True))
    assert branch.pool
    assert all(fits(branch.room, candidate.orders) for candidate in branch.pool)


def test_a_list_scheduler_that_is_out_of_time_leaves_the_plainest_order() -> None:
    problem = problem_of(8, 64, stages_per_device=4)
    branch = Branch(problem, StagePlacement.LOOP, Judge(problem))
    looks = 0

    def out_of_time() -> bool:
        nonlocal looks
        looks += 1
        return True

    branch.enter_listed(random.Random(0), out_of_time)

    assert looks == 2  # once within the first style, and once behind it
    assert len(branch.pool) == 2  # one micro-batch after the other, entered again when it was judged
