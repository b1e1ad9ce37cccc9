"""Draws from samples, each task for itself or, where repeats are known, together with what was measured together."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.sampling import block_bootstrap
from schedir.costs.table.table import TableCosts
from schedir.costs.transfers import transfers
from schedir.costs.work import WorkTime
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from tests.costs.graphs import graph_of, overlapped_graph
from tests.costs.tables import every_stage

FORWARD = WorkTime(2.0, first=4.0, samples=(1.0, 1.1, 2.0, 2.2, 3.0), repeats=(0, 0, 1, 1, 4))
BACKWARD = WorkTime(20.0, samples=(10.0, 20.0, 20.0, 30.0), repeats=(0, 1, 1, 4))
OF_REPEAT = {1.0: 0, 1.1: 0, 2.0: 1, 2.2: 1, 3.0: 4}


def measured(**times: Any) -> TableCosts:
    return TableCosts(default=PieceCosts(**{"forward": FORWARD, "backward": BACKWARD, **times}))


def repeated(name: str, devices: int, micro_batches: int, *, mini_batches: int) -> TaskGraph:
    return compile_program(build_program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=mini_batches))


def test_the_tasks_of_a_mini_batch_draw_from_one_repeat() -> None:
    graph = repeated("gpipe", 2, 3, mini_batches=5)
    drawn = measured().sample_times(graph, np.random.default_rng(0), 40)
    first = graph.micro_batch % 3 == 0
    used = set()
    for sample, mini_batch in product(range(40), range(5)):
        own = graph.mini_batch == mini_batch
        forwards, backwards = (drawn[own & (graph.kind == kind) & ~first, sample] for kind in (Kind.FORWARD, Kind.BACKWARD))
        (repeat,) = {OF_REPEAT[seconds] for seconds in forwards.tolist()}
        assert set(backwards.tolist()) == {{0: 10.0, 1: 20.0, 4: 30.0}[repeat]}
        used.add(repeat)
    assert used == {0, 1, 4}


def test_firsts_vary_with_their_repeat() -> None:
    graph = repeated("1f1b", 1, 2, mini_batches=4)
    drawn = measured().sample_times(graph, np.random.default_rng(1), 60)
    first = (graph.kind == Kind.FORWARD) & (graph.micro_batch % 2 == 0)
    backward = (graph.kind == Kind.BACKWARD) & (graph.micro_batch % 2 == 0)
    pairs = set(zip(drawn[backward].reshape(-1).tolist(), drawn[first].reshape(-1).tolist(), strict=True))
    assert pairs == {(10.0, 2.0), (10.0, 2.2), (20.0, 4.0), (20.0, 4.4), (30.0, 6.0)}


def test_a_repeat_without_samples_of_a_kind_draws_from_all_of_them() -> None:
    update = WorkTime(0.5, samples=(0.5, 0.75), repeats=(0, 1))
    graph = repeated("1f1b", 1, 2, mini_batches=4)
    drawn = measured(update=update).sample_times(graph, np.random.default_rng(2), 60)
    last = graph.kind == Kind.UPDATE
    backward = (graph.kind == Kind.BACKWARD) & (graph.micro_batch % 2 == 1)
    pairs = set(zip(drawn[backward].reshape(-1).tolist(), drawn[last].reshape(-1).tolist(), strict=True))
    assert pairs == {(10.0, 0.5), (20.0, 0.75), (30.0, 0.5), (30.0, 0.75)}


def test_kinds_without_repeats_are_drawn_without_regard_to_others() -> None:
    alone = WorkTime(10.0, samples=(10.0, 20.0))
    graph = graph_of("gpipe", 1, 2)
    drawn = measured(backward=alone).sample_times(graph, np.random.default_rng(3), 100)
    rows = drawn[graph.kind == Kind.BACKWARD]
    assert set(zip(*rows.tolist(), strict=True)) == {(10.0, 10.0), (10.0, 20.0), (20.0, 10.0), (20.0, 20.0)}


def test_the_two_actions_of_a_pair_have_the_repeats_of_their_mini_batches() -> None:
    forward = WorkTime(1.0, samples=(1.0, 2.0), repeats=(0, 1))
    backward = WorkTime(10.0, samples=(10.0, 20.0), repeats=(0, 1))
    graph = overlapped_graph()
    drawn = TableCosts(default=PieceCosts(forward=forward, backward=backward)).sample_times(graph, np.random.default_rng(0), 200)
    assert set(drawn[graph.pairs.task[0]].tolist()) == {11.0, 22.0}


def test_mini_batches_follow_each_other_as_repeats_did_in_blocks_of_their_cube_root() -> None:
    """27 repeats: a block ends with probability 1/3, and a new one begins at the same next repeat once in 27."""
    found = block_bootstrap(27, (50, 200), np.random.default_rng(0))
    assert found.shape == (50, 200)
    assert set(found.reshape(-1).tolist()) == set(range(27))
    follows = (found[1:] - found[:-1]) % 27 == 1
    assert follows.mean() == pytest.approx(2 / 3 + 1 / 3 / 27, abs=0.015)


def test_one_repeat_is_drawn_always() -> None:
    assert block_bootstrap(1, (3, 2), np.random.default_rng(0)).tolist() == [[0, 0]] * 3


@pytest.mark.parametrize(
    ("repeats", "line"),
    [
        ((0,), "repeats has 1 values for 2 samples: give one for each"),
        ((1, 0), r"repeats \[1, 0\] fall: give samples in the order in which they were measured"),
        ((-1, 0), "repeats -1 must be an integer of at least 0: number the measured mini-batches from 0"),
        ((0, 0.5), r"repeats 0\.5 must be an integer of at least 0"),
    ],
)
def test_repeats_that_fit_no_samples_are_refused(repeats: Any, line: str) -> None:
    with pytest.raises(ArgumentError, match=line):
        WorkTime(1.0, samples=(1.0, 2.0), repeats=repeats)


def test_samples_are_drawn_by_every_task_for_itself() -> None:
    forward = WorkTime(2.0, first=4.0, samples=(1.0, 2.0, 3.0))
    costs = every_stage(forward=forward)
    graph = graph_of("gpipe", 2, 3)
    drawn = costs.sample_times(graph, np.random.default_rng(0), 300)
    forwards = (graph.kind == Kind.FORWARD) & (graph.stage == 0)
    first, second, _ = np.flatnonzero(forwards)

    assert drawn.shape == (graph.num_tasks, 300)
    assert set(drawn[second].tolist()) == {1.0, 2.0, 3.0}
    assert set(drawn[first].tolist()) == {2.0, 4.0, 6.0}  # a first varies as the others do
    assert set(drawn[graph.kind == Kind.BACKWARD].reshape(-1).tolist()) == {2.0}
    assert set(drawn[transfers(graph)].reshape(-1).tolist()) == {0.0}
    assert (drawn[second] != drawn[second + 1]).any()
    assert costs.has_samples


def test_the_same_seed_draws_the_same_samples() -> None:
    costs = every_stage(forward=WorkTime(2.0, samples=(1.0, 2.0, 3.0)))
    graph = graph_of("gpipe", 2, 3)
    once, again, other = (costs.sample_times(graph, np.random.default_rng(seed), 20) for seed in (7, 7, 8))

    assert (once == again).all()
    assert (once != other).any()


def test_the_actions_of_a_pair_draw_apart_unless_the_pair_is_stated() -> None:
    forward, backward = WorkTime(1.0, samples=(1.0, 2.0)), WorkTime(10.0, samples=(10.0, 20.0))
    graph = overlapped_graph()
    apart = every_stage(forward=forward, backward=backward).sample_times(graph, np.random.default_rng(0), 200)
    stated = every_stage(forward=forward, backward=backward, overlapped=5).sample_times(graph, np.random.default_rng(0), 9)

    assert set(apart[graph.pairs.task[0]].tolist()) == {11.0, 12.0, 21.0, 22.0}
    assert set(stated[graph.pairs.task[0]].tolist()) == {5.0}


def test_costs_without_samples_draw_their_medians() -> None:
    graph = graph_of("gpipe", 2, 3)
    drawn = every_stage().sample_times(graph, np.random.default_rng(0), 2)

    assert (drawn == every_stage().times(graph).duration[:, None]).all()
    assert not every_stage().has_samples
