"""The SimPy engine against the longest-path pass, and what it says of tasks that can never start."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.costs.uniform import UniformCosts
from schedir.errors import DeadlockError
from schedir.ir.arrays import frozen_array
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import Spans, TaskTimes, evaluate
from simulator.engine import SimpyEngine
from tests.simulator.doubles import graph_of, random_times
from tests.strategies import graphs, uniform_costs


def assert_equal_to_the_last_bit(found: Spans, expected: Spans) -> None:
    assert found.start.tobytes() == expected.start.tobytes()
    assert found.release.tobytes() == expected.release.tobytes()
    assert found.end.tobytes() == expected.end.tobytes()


@given(graph=graphs(), seed=st.integers(0, 2**32))
def test_both_engines_agree_to_the_last_bit(graph: TaskGraph, seed: int) -> None:
    times = random_times(graph, seed)

    assert_equal_to_the_last_bit(SimpyEngine(graph, times).run(), evaluate(graph, times))


@given(st.data())
def test_both_engines_agree_on_uniform_costs(data: st.DataObject) -> None:
    graph = data.draw(graphs(modes=("never", "except-last", "always")))
    times = data.draw(uniform_costs(graph.program.num_stages)).times(graph)

    assert_equal_to_the_last_bit(SimpyEngine(graph, times).run(), evaluate(graph, times))


@pytest.mark.parametrize("replicas", [(2, 2), (1, 2, 1), (3, 1), (2, 3)])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_both_engines_agree_where_gradients_go_to_a_link_and_to_a_reduction(replicas: tuple[int, ...], micro_batches: int) -> None:
    graph = graph_of("pipedream", sum(replicas), micro_batches, mini_batches=max(replicas), replicas=replicas)
    times = random_times(graph, 0)

    assert_equal_to_the_last_bit(SimpyEngine(graph, times).run(), evaluate(graph, times))


@pytest.mark.slow
@pytest.mark.parametrize("devices", [24, 40])
def test_both_engines_agree_where_the_pass_goes_in_waves(devices: int) -> None:
    graph = graph_of("1f1b", devices, 60, mini_batches=2)
    times = random_times(graph, devices)

    assert_equal_to_the_last_bit(SimpyEngine(graph, times).run(), evaluate(graph, times))


def test_an_empty_lane_is_no_obstacle() -> None:
    graph = graph_of("gpipe", 1, 1)
    graph = dataclasses.replace(graph, lane_start=frozen_array([0, graph.num_tasks, graph.num_tasks], np.int64))
    graph = dataclasses.replace(graph, lanes=(*graph.lanes, graph.lanes[0]))

    assert SimpyEngine(graph, UniformCosts().times(graph)).run().end.max() == 3.0


def test_tasks_that_can_never_start_are_named() -> None:
    # A graph that no compiler makes: 0F0 waits for 1B0, which waits for it. SimPy alone would end quietly.
    graph = graph_of("gpipe", 2, 1)
    labels = [graph.label(task) for task in range(graph.num_compute_tasks)]
    first, last = labels.index("0F0"), labels.index("1B0")
    edges = sorted([*zip(*(column.tolist() for column in graph.edges()[1::-1]), strict=True), (first, last)])
    edges = [(target, source) for target, source in edges if target != source + 1 or (target == first)]
    targets = np.array([target for target, _ in edges])
    graph = dataclasses.replace(
        graph,
        edge_source=frozen_array([source for _, source in edges], np.int32),
        edge_start=frozen_array(np.searchsorted(targets, np.arange(graph.num_tasks + 1)), np.int64),
    )

    with pytest.raises(DeadlockError, match=r"device 0: 0F0 waits for 1B0; device 1: 1F0 waits for 0F0.*change the order"):
        SimpyEngine(graph, TaskTimes(np.ones(graph.num_tasks))).run()


@pytest.mark.parametrize(("devices", "cut"), [(8, False), (9, True)])
def test_of_many_that_wait_eight_are_named(devices: int, cut: bool) -> None:
    graph = graph_of("gpipe", devices, 1)
    engine = SimpyEngine(graph, UniformCosts().times(graph))
    engine._parked = graph.lane_start[:devices].tolist()  # as if nobody had ever begun
    said = str(engine._deadlock())

    assert said.count(" waits for ") == 8
    assert ("device 7: 7F0 waits for 6F0; …: none" in said) is cut
