"""The fast evaluation of orders: the same times as the compiled graph in order."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_with
from schedir.costs.cluster.cluster_file import load_cluster
from schedir.costs.uniform import UniformCosts
from schedir.ir.order.in_order import evaluate
from schedir.search.heuristics.greedy import list_order
from schedir.search.heuristics.styles import shaken, styles
from schedir.search.heuristics.walk import Walk
from schedir.search.problem.problem import Problem, StagePlacement
from schedir.search.problem.room import room_of
from schedir.search.problem.tables import tables_of
from schedir.search.problem.work import Order, program_of
from tests.repository import ROOT
from tests.search.problems import problem_of, problems

CLUSTER = ROOT / "tests" / "data" / "h100-64.cluster.toml"


def ends_of(problem: Problem, orders: list[Order], placement: StagePlacement) -> list[float]:
    """Return when each device is done by the compiled graph."""
    tables = tables_of(problem, placement)
    graph = compile_with(program_of(orders, tables.numbering, name="test"), problem.lowering)
    times = problem.costs.times(graph) if problem.cluster is None else problem.cluster.times(graph, problem.costs)
    release = evaluate(graph, times).release
    return [float(release[graph.lane_start[device + 1] - 1]) for device in range(problem.num_devices)]


def some_orders(problem: Problem, placement: StagePlacement, seed: int) -> list[Order]:
    tables, generator = tables_of(problem, placement), random.Random(seed)
    style = generator.choice(styles(tables, generator))
    found = list_order(
        tables, room_of(problem, tables, None), shaken(style, tables, room_of(problem, tables, None), generator=generator)
    )
    assert found is not None
    return found


@pytest.mark.law
@given(problem=problems(), seed=st.integers(0, 99))
def test_devices_are_done_when_the_compiled_graph_says(problem: Problem, seed: int) -> None:
    placement = problem.placements()[0]
    orders = some_orders(problem, placement, seed)

    assert Walk(tables_of(problem, placement)).finish(orders) == pytest.approx(ends_of(problem, orders, placement), abs=1e-9)


@pytest.mark.parametrize("seed", range(50))
def test_shaken_priorities_never_stick_where_one_micro_batch_at_a_time_fits(seed: int) -> None:
    """Micro-batch 1 may be preferred to 0, but must not keep it from running: the limit admits one after the other."""
    problem = problem_of(1, 2, live=1)

    assert len(some_orders(problem, StagePlacement.LOOP, seed)[0]) in {4, 6}


@pytest.mark.parametrize("placement", StagePlacement)
def test_links_carry_one_after_the_other(placement: StagePlacement) -> None:
    costs = UniformCosts(forward=1e-3, input_grad=1e-3, weight_grad=1e-3, transfer_bytes=5e8)  # 1.4 ms over NVLink
    cluster = load_cluster(CLUSTER)
    problem = Problem(num_devices=3, num_micro_batches=6, stages_per_device=2, placement=placement, costs=costs, cluster=cluster)
    orders = some_orders(problem, placement, 1)

    ends = Walk(tables_of(problem, placement)).finish(orders)

    assert ends == pytest.approx(ends_of(problem, orders, placement), rel=1e-9)


def test_orders_that_block_have_no_ends() -> None:
    problem = problem_of(2, 1)
    tables = tables_of(problem, StagePlacement.LOOP)
    orders = some_orders(problem, StagePlacement.LOOP, 0)
    orders[1].reverse()  # W, I, F: I waits for the device's own forward

    assert Walk(tables).finish(orders) is None


def test_the_longest_path_reaches_from_the_last_end_to_a_start() -> None:
    problem = problem_of(2, 3, times={"forward": 1, "backward": 2, "transfer": 0.5})
    tables = tables_of(problem, StagePlacement.LOOP)
    orders = some_orders(problem, StagePlacement.LOOP, 0)
    walk = Walk(tables)
    ends = walk.finish(orders)
    assert ends is not None

    path = walk.critical(orders, int(np.argmax(ends)))

    assert walk.release[path[0]] == max(ends)
    assert walk.begin[path[-1]] == 0.0
    for later, earlier in pairwise(path):
        assert walk.begin[later] in {walk.release[earlier], walk.release[earlier] + 0.5}
