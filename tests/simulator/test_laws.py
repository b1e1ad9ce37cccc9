"""What holds for any graph that compiles, of no pattern too: the engines, and a plain walk, come to the same times."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from schedir.errors import DeadlockError
from schedir.ir.action import Kind
from schedir.ir.facts import facts
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.order.in_order import TaskTimes, evaluate, evaluate_samples
from simulator.engine import SimpyEngine
from simulator.memory import ledger
from simulator.network import Conditions, Shared, SharingRule, Speed
from simulator.rendezvous import RendezvousEngine
from tests.simulator.doubles import random_times, unit_bytes
from tests.simulator.oracles import EventLoop, Meetings
from tests.strategies import any_graphs

pytestmark = pytest.mark.law

SEEDS = st.integers(0, 2**32)


@given(any_graphs(), SEEDS)
def test_all_three_passes_agree_to_the_last_bit(graph: TaskGraph, seed: int) -> None:
    times = random_times(graph, seed)
    expected, events = evaluate(graph, times), SimpyEngine(graph, times).run()
    doubled = np.stack([times.duration, 2 * times.duration], axis=1)
    latency = None if times.latency is None else times.latency[:, None]
    start, end = evaluate_samples(graph, doubled, latency=latency, gap=times.gap)

    for column in ("start", "release", "end"):
        assert getattr(events, column).tobytes() == getattr(expected, column).tobytes()
    assert start[:, 0].tobytes() == expected.start.tobytes()
    assert end[:, 0].tobytes() == expected.end.tobytes()
    assert end[:, 1].tobytes() == evaluate(graph, TaskTimes(doubled[:, 1], times.latency, times.gap)).end.tobytes()


@st.composite
def all_conditions(draw: DrawFn, graph: TaskGraph) -> Conditions:
    """Draw what lanes share, and how fast they are when: devices their cores, links the cards at both ends, lanes anything."""
    lanes = [number for number, lane in enumerate(graph.lanes) if lane.kind is not LaneKind.REDUCE]
    links = [number for number in lanes if graph.lanes[number].kind is LaneKind.LINK]
    demand = {lane: draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])) for lane in lanes}
    shared = []
    for _ in range(draw(st.integers(0, 3))):
        rule = draw(st.sampled_from(SharingRule)) if links else SharingRule.FAIR
        # only cards have queues; a device and its own message would ask for one at one time
        users = draw(st.lists(st.sampled_from(links if rule is SharingRule.FIFO else lanes), min_size=1, max_size=4, unique=True))
        shared.append(Shared(rule, {lane: demand[lane] for lane in users}, draw(st.sampled_from([0.5, 1.0, 1.5, 3.0]))))
    speeds = {}
    for lane in draw(st.lists(st.sampled_from(lanes), max_size=2, unique=True)):
        since = sorted(draw(st.lists(st.floats(0.1, 20), max_size=2, unique=True)))
        factors = [draw(st.sampled_from([0.0, 0.5, 2.0])) for _ in since]
        speeds[lane] = Speed((0.0, *since), (*factors, draw(st.sampled_from([0.5, 1.0, 1.5]))))
    return Conditions(tuple(shared), speeds)


@given(st.data(), any_graphs().filter(lambda graph: graph.num_tasks <= 150), SEEDS)
def test_lanes_that_share_things_are_served_as_a_plain_event_loop_serves_them(
    data: st.DataObject, graph: TaskGraph, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    latency = np.where(np.arange(graph.num_tasks) >= graph.num_compute_tasks, rng.random(graph.num_tasks), 0.0)
    # no two ask at one time by chance: whoever is first then is nobody's business
    times = TaskTimes(rng.random(graph.num_tasks) + 0.01, data.draw(st.sampled_from([None, latency])), rng.choice([0.0, 0.1]))
    conditions = data.draw(all_conditions(graph))

    found = SimpyEngine(graph, times, conditions or None).run()

    expected = np.array(EventLoop(graph, times, conditions).run()).reshape(-1, 2)
    assert found.start == pytest.approx(expected[:, 0], abs=1e-6)
    assert found.release == pytest.approx(expected[:, 1], abs=1e-6)


@given(any_graphs(), SEEDS)
def test_blocking_sends_are_meetings(graph: TaskGraph, seed: int) -> None:
    times = random_times(graph, seed)
    expected = Meetings(graph, times).run()

    if expected is None:
        with pytest.raises(DeadlockError, match="deadlock"):
            RendezvousEngine(graph, times).run()
        return
    found = RendezvousEngine(graph, times).run()
    assert found.start.tolist() == pytest.approx([start for start, _ in expected])
    assert found.release.tolist() == pytest.approx([release for _, release in expected])


@given(any_graphs(), SEEDS)
def test_memory_ends_where_it_began(graph: TaskGraph, seed: int) -> None:
    held: dict[str, Any] = {"weights": 1000, "gradients": 500, "optimizer": 2000, "activations": 7, "boundary": 3}
    passing: dict[str, Any] = {"recomputed": 5, "output": 2, "input_gradient": 4, "workspace": 6}
    times = random_times(graph, seed)

    for steps in ledger(graph, evaluate(graph, times), unit_bytes(graph.program.num_stages, **held, **passing)):
        assert steps.by_class.min() >= 0
        assert steps.by_class[-1].tolist() == steps.by_class[0].tolist()


@given(any_graphs(), SEEDS)
def test_a_device_holds_as_many_activations_as_the_facts_count(graph: TaskGraph, seed: int) -> None:
    """Nothing computed again: a unit for every pair of stage and micro-batch, whatever takes how long."""
    alive = facts(graph).peak_live_activations
    memory = ledger(
        graph, evaluate(graph, random_times(graph, seed)), unit_bytes(graph.program.num_stages, activations=1, boundary=1)
    )

    assert graph.kind.tolist().count(Kind.RECOMPUTE) > 0 or [int(steps.total.max()) for steps in memory] == list(alive)
