"""`simulate`: engines, what they refuse, and what a timeline says of how it was made."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, DeadlockError, RefusedError
from schedir.ir.arrays import frozen_array
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from schedir.schedules.registry import schedule_names
from schedir.timeline.timeline import Source
from simulator import simulate
from tests.repository import ROOT
from tests.simulator.doubles import CostsWithBytes, graph_of

ENGINES = ("in-order", "simpy")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("schedule", "micro_batches", "recompute", "start", "expected"),
    [
        # p = 4, F = R = 1, B = 2. GPipe (Huang et al. 2019): (m + p - 1)(F + B) without, (m + p - 1)(F + R + B) with recomputation
        # of all on the gradient; early, R hides in the wait of all devices but the last: p - 1 less; without that of the last
        # micro-batch, whose R is the first: 1 less. For m = 4 these are the values of known problem D20.
        ("gpipe", 4, "never", "early", 21),
        ("gpipe", 4, "except-last", "early", 24),
        ("gpipe", 4, "always", "early", 25),
        ("gpipe", 4, "except-last", "on-gradient", 27),
        ("gpipe", 4, "always", "on-gradient", 28),
        ("gpipe", 8, "never", "early", 33),
        ("gpipe", 8, "except-last", "early", 40),
        ("gpipe", 8, "always", "early", 41),
        ("gpipe", 8, "except-last", "on-gradient", 43),
        ("gpipe", 8, "always", "on-gradient", 44),
        # 1F1B takes as long, but except-last on the gradient: device 3 ends B2 at 4F + 3(R + B) + 2F = 15, devices 2 to 0 end
        # R2 and B2 at 15 + 3 x 3 = 24, and device 0 its B3, which needs no R, at 26.
        ("1f1b", 4, "never", "early", 21),
        ("1f1b", 4, "except-last", "early", 24),
        ("1f1b", 4, "always", "early", 25),
        ("1f1b", 4, "except-last", "on-gradient", 26),
        ("1f1b", 4, "always", "on-gradient", 28),
    ],
)
def test_makespan_with_recomputation(
    *, engine: str, schedule: str, micro_batches: int, recompute: str, start: str, expected: int
) -> None:
    graph = graph_of(schedule, 4, micro_batches, recompute=recompute, recompute_start=start)

    assert simulate(graph, UniformCosts(), engine=engine).makespan_s == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("recompute", "m", "expected"), [("always", 4, 16), ("except-last", 4, 15), ("never", 4, 12), ("except-last", 1, 3)]
)
def test_recomputation_on_one_device_costs_its_time(*, engine: str, recompute: str, m: int, expected: int) -> None:
    graph = graph_of("gpipe", 1, m, recompute=recompute)

    assert simulate(graph, UniformCosts(), engine=engine).makespan_s == expected  # D20


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("schedule", "expected"), [("gpipe", {2: 15, 1: 12}), ("1f1b", {2: 15, 1: 12})])
def test_fewer_micro_batches_than_stages(engine: str, schedule: str, expected: dict[int, int]) -> None:
    found = {m: simulate(graph_of(schedule, 4, m), UniformCosts(), engine=engine).makespan_s for m in (2, 1)}

    assert found == expected  # D1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("schedule", "expected"), [("gpipe", 42), ("1f1b", 40)])
def test_micro_batches_of_different_sizes_take_different_times(engine: str, schedule: str, expected: int) -> None:
    costs = UniformCosts(micro_batch_sizes=(3, 3, 2))

    assert simulate(graph_of(schedule, 3, 3), costs, engine=engine).makespan_s == expected  # D2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("schedule", "expected"), [("1f1b", 55), ("gpipe", 57)])
def test_one_stage_twice_as_slow(engine: str, schedule: str, expected: int) -> None:
    costs = UniformCosts(forward=(1, 1, 2, 1), backward=(2, 2, 4, 2))

    assert simulate(graph_of(schedule, 4, 8), costs, engine=engine).makespan_s == expected  # D30


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stage_that_costs_nothing_is_no_obstacle(engine: str) -> None:
    costs = UniformCosts(forward=(1, 0, 1), backward=(2, 0, 2))

    assert simulate(graph_of("1f1b", 3, 4), costs, engine=engine).makespan_s == 15  # D30


def test_auto_takes_the_pass_where_nothing_but_graph_and_costs_decides() -> None:
    graph = graph_of("gpipe", 2, 2)

    assert simulate(graph, UniformCosts()).meta["engine"] == "in-order"
    assert simulate(graph, UniformCosts(), jitter=0.1).meta["engine"] == "simpy"
    assert simulate(graph, UniformCosts(), sends="rendezvous").meta["engine"] == "simpy"


def test_in_order_refuses_blocking_sends_with_the_reason() -> None:
    with pytest.raises(RefusedError, match=r"engine 'in-order' cannot do rendezvous sends.*use simpy or auto"):
        simulate(graph_of("gpipe", 2, 2), UniformCosts(), engine="in-order", sends="rendezvous")


def test_edges_with_a_lag_are_for_the_pass_alone() -> None:
    graph = graph_of("gpipe", 2, 2)
    graph = dataclasses.replace(graph, edge_lag=frozen_array(np.zeros(len(graph.edge_source)), np.float64))

    assert simulate(graph, UniformCosts(), jitter=0.1).meta["engine"] == "in-order"
    with pytest.raises(RefusedError, match=r"no early releases .*: use engine in-order"):
        simulate(graph, UniformCosts(), engine="simpy")


def test_blocking_sends_of_1f1b_are_a_deadlock_only_when_asked_for() -> None:
    graph = graph_of("1f1b", 4, 8)

    assert simulate(graph, UniformCosts(), engine="simpy").makespan_s == 33
    with pytest.raises(DeadlockError, match="blocking sends: device 0 sends 0F3"):
        simulate(graph, UniformCosts(), sends="rendezvous")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "numba"}, "engine 'numba' is unknown: use auto, in-order or simpy"),
        ({"sends": "fast"}, "sends 'fast' is unknown: use buffered or rendezvous"),
        ({"jitter": float("nan")}, "jitter nan is not finite"),
        ({"seed": -1}, "seed -1 must be an integer of at least 0"),
        ({"memory_limit": float("nan")}, "memory_limit nan is not finite"),
        ({"memory_limit": (1e9, 2e9, 3e9)}, "memory_limit has 3 values for 2 devices: give one, or one per device"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        simulate(graph_of("gpipe", 2, 2), UniformCosts(), **arguments)


class TimesOf(CostsWithBytes):
    """Costs with a fault in the duration of one task."""

    def __init__(self, fault: float) -> None:
        super().__init__()
        self._fault = fault

    def times(self, graph: TaskGraph) -> TaskTimes:
        duration = np.ones(graph.num_tasks)
        duration[1] = self._fault
        return TaskTimes(duration)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fault", [float("nan"), float("inf"), -1.0])
def test_costs_that_are_no_times_are_refused_by_the_name_of_their_task(engine: str, fault: float) -> None:
    with pytest.raises(ArgumentError, match=f"give 0F1 a duration of {fault} s: it must be finite and at least 0"):
        simulate(graph_of("gpipe", 2, 2), TimesOf(fault), engine=engine)


def test_a_timeline_says_how_it_was_made() -> None:
    timeline = simulate(graph_of("1f1b", 2, 4), CostsWithBytes(UniformCosts(transfer=0.5), weights=10), memory_limit=80e9)

    assert timeline.source is Source.SIMULATED
    assert timeline.meta["engine"] == "in-order"
    assert timeline.meta["seed"] is None
    assert timeline.meta["costs"]["transfer_s"] == 0.5
    assert timeline.meta["cluster"] is None
    assert timeline.meta["limit_bytes"] == [80_000_000_000, 80_000_000_000]
    assert timeline.meta["notes"] == ["memory is not computed: uniform costs carry no bytes"]
    json.dumps(dict(timeline.meta))  # plain values only


@pytest.mark.parametrize("limit", [np.float64(80e9), np.array(80e9), np.array([80e9, 80e9])], ids=["scalar", "0-d", "1-d"])
def test_a_memory_limit_may_be_a_number_of_numpy(limit: Any) -> None:
    costs = CostsWithBytes(UniformCosts(), weights=10)

    assert simulate(graph_of("1f1b", 2, 4), costs, memory_limit=limit).meta["limit_bytes"] == [80_000_000_000] * 2


@pytest.mark.parametrize("limit", [80e9, (80e9, 40e9)])
def test_a_memory_limit_is_refused_where_costs_carry_no_bytes(limit: float | tuple[float, float]) -> None:
    message = r"^memory_limit .*8.* is compared with the memory that is held, but these costs carry no bytes: give a costs file"
    with pytest.raises(RefusedError, match=message):
        simulate(graph_of("1f1b", 2, 4), UniformCosts(), memory_limit=limit)


def test_release_is_kept_where_transfers_have_latency() -> None:
    graph = graph_of("1f1b", 2, 4)
    timeline = simulate(graph, UniformCosts(transfer=0.5))

    assert simulate(graph, UniformCosts()).release is None
    assert timeline.release is not None
    assert (timeline.end - timeline.release)[graph.num_compute_tasks :].tolist() == [0.5] * 8


def test_a_seed_that_draws_nothing_is_said_in_the_notes() -> None:
    timeline = simulate(graph_of("gpipe", 2, 2), UniformCosts(), seed=3)

    assert "seed 3 draws nothing: there is neither jitter nor a cost with measured samples" in timeline.meta["notes"]


def test_jitter_is_the_same_on_both_engines_and_by_the_seed() -> None:
    graph = graph_of("1f1b", 4, 8)
    runs = {
        (engine, seed): simulate(graph, UniformCosts(), engine=engine, jitter=0.1, seed=seed)
        for engine in ENGINES
        for seed in (0, 1)
    }

    assert runs["simpy", 0].end.tobytes() == runs["in-order", 0].end.tobytes()
    assert runs["simpy", 0].makespan_s != runs["simpy", 1].makespan_s
    assert runs["simpy", 0].meta["seed"] == 0
    assert simulate(graph, UniformCosts(), jitter=0.1).end.tobytes() == runs["simpy", 0].end.tobytes()


_DIGEST = """
import hashlib, json, sys
from tests.simulator.test_simulation import digest
print(digest())
"""


def digest() -> str:
    """Return a digest of simulated timelines, bytes of spans, memory and meta."""
    found = hashlib.sha256()
    for name in schedule_names():
        for engine in ENGINES:
            costs = CostsWithBytes(UniformCosts(transfer=0.1), activations=3, output=1, weights=10)
            timeline = simulate(graph_of(name, 4, 8), costs, engine=engine, jitter=0.2, seed=7)
            assert timeline.memory is not None
            for part in (timeline.start, timeline.end, *(steps.by_class for steps in timeline.memory)):
                found.update(part.tobytes())
            found.update(json.dumps(dict(timeline.meta)).encode())
    return found.hexdigest()


@pytest.mark.parametrize("hash_seed", ["0", "12345"])
def test_simulated_timelines_are_equal_byte_for_byte_whatever_the_hash_seed(hash_seed: str) -> None:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", _DIGEST], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.stdout.strip() == digest(), done.stderr
