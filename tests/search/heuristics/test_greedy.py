"""The list scheduler: whatever its style, all work once, within the limits, and it never sticks."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.ir.facts import facts
from schedir.search.heuristics.greedy import list_order
from schedir.search.heuristics.styles import shaken, styles
from schedir.search.problem.problem import Problem, StagePlacement
from schedir.search.problem.room import room_of
from schedir.search.problem.tables import tables_of
from schedir.search.problem.work import program_of
from tests.search.problems import problem_of, problems


@pytest.mark.law
@given(problem=problems(), seed=st.integers(0, 999))
def test_every_style_makes_a_program_within_the_limit(problem: Problem, seed: int) -> None:
    tables, generator = tables_of(problem, problem.placements()[0]), random.Random(seed)
    style = shaken(generator.choice(styles(tables, generator)), tables, room_of(problem, tables, None), generator=generator)

    orders = list_order(tables, room_of(problem, tables, None), style)

    assert orders is not None
    graph = compile_program(program_of(orders, tables.numbering, name="test"))
    live = problem.limits.live(problem.num_devices)
    assert live is None or all(alive <= most for alive, most in zip(facts(graph).peak_live_activations, live, strict=True))


def test_backwards_first_on_one_stage_per_device_is_1f1b() -> None:
    problem = problem_of(3, 4, live=3, times={"forward": 1, "backward": 2})
    tables = tables_of(problem, StagePlacement.LOOP)
    style = next(style for style in styles(tables, random.Random(0)) if not style.forwards_first)

    orders = list_order(tables, room_of(problem, tables, None), style)

    assert orders is not None
    assert str(program_of(orders, tables.numbering, name="mine")).splitlines()[-1].endswith("2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3")


def test_what_does_not_fit_at_all_is_given_up() -> None:
    problem = problem_of(2, 2, live=1, stages_per_device=2)
    tables = tables_of(problem, StagePlacement.V)
    style = styles(tables, random.Random(0))[0]

    assert list_order(tables, room_of(problem, tables, None), style) is None
