"""Common updates: no stage updates before all have their gradients, since one number of all of them decides."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schedir.compiler import compile_program, load_timeline
from schedir.costs.cluster.cluster import Cluster
from schedir.costs.cluster.cluster_file import load_cluster
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError, ProgramError, RefusedError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import SCHEDULES, build_program
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.trace.trace import write_trace
from simulator import simulate
from tests.lowering.test_across import sums
from tests.near import near
from tests.programs import lane_of, written

FREE = "the exchange of what all stages decide their updates by is free"


def common(name: str, *, devices: int = 4, micro_batches: int = 4, mini_batches: int = 1) -> TaskGraph:
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=mini_batches)
    return compile_program(program, common_update=True)


def update_starts(graph: TaskGraph, engine: str) -> dict[str, float]:
    timeline = simulate(graph, UniformCosts(), engine=engine)
    return {graph.label(task): float(timeline.start[task]) for task in np.flatnonzero(graph.kind == Kind.UPDATE).tolist()}


@pytest.fixture
def wired(tmp_path: Path) -> Cluster:
    """Two devices, 10 bytes/s and 0.5 s from one to the other."""
    path = tmp_path / "two.cluster.toml"
    path.write_text(
        'schema = "schedir.cluster/1"\n[device]\nmemory = "1 GB"\n[hosts]\ncount = 1\ndevices_per_host = 2\n'
        '[[links]]\nname = "wire"\njoins = "host"\nbandwidth = "10 B/s"\nlatency = "0.5 s"\n',
        encoding="utf-8",
    )
    return load_cluster(path)


SENT = PieceCosts(forward=1.0, backward=2.0, update=1.0, bytes=PieceBytes(output=1.0))


# ---------------------------------------------------------------- the edges


def test_every_update_waits_for_the_last_gradients_of_all_stages() -> None:
    assert sums(common("1f1b", devices=3, micro_batches=2, mini_batches=2)) == [
        ("reduce all stages", ["0B1", "1B1", "2B1"], ["0U1", "1U1", "2U1"]),
        ("reduce all stages", ["0B3", "1B3", "2B3"], ["0U3", "1U3", "2U3"]),
    ]


def test_where_the_backward_is_split_its_last_half_counts() -> None:
    assert sums(common("zb-h1", devices=2, micro_batches=2)) == [("reduce all stages", ["0W1", "1W1"], ["0U1", "1U1"])]


def test_it_stands_behind_the_sums_of_replicas_and_of_ties() -> None:
    replicas = common("chimera", devices=2, micro_batches=2)
    tied = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=2), ties=[(0, 2)], common_update=True)

    lane, sources, updates = sums(replicas)[-1]
    assert (lane, len(sources), len(updates)) == ("reduce all stages", 2, 4)
    assert all(replicas.kind[source] == Kind.REDUCE for source in replicas.sources(replicas.num_tasks - 1).tolist())
    assert [tied.task(source).kind for source in tied.sources(tied.num_tasks - 1).tolist()] == [Kind.BACKWARD, Kind.REDUCE]
    assert sums(tied)[-1][1][0] == "1B1"


def test_a_device_of_several_stages_updates_them_behind_all_its_gradients() -> None:
    program = written("0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0", m=1, stages=4)

    assert lane_of(compile_program(program), 1) == "1F0 3F0 3B0 3U0 1B0 1U0"
    assert lane_of(compile_program(program, common_update=True), 1) == "1F0 3F0 3B0 1B0 1U0 3U0"


@pytest.mark.parametrize("together", [{"common_update": True}, {"ties": [(0, 2)]}])
def test_where_another_stage_has_replicas_it_updates_behind_all_its_gradients_too(together: dict[str, Any]) -> None:
    program = written("0F0 0B0", "0F1 0B1", "1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1", m=2, stages=3)

    assert lane_of(compile_program(program), 2) == "1F0 2F0 2B0 1B0 1F1 2F1 2B1 2U1 1B1 1U1"
    assert lane_of(compile_program(program, **together), 2) == "1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1 1U1 2U1"


def test_one_device_has_nothing_to_exchange() -> None:
    graph = compile_program(written("0F0 1F0 1B0 0B0", m=1, stages=2), common_update=True)

    assert (lane_of(graph, 0), sums(graph)) == ("0F0 1F0 1B0 0B0 0U0 1U0", [])


def test_edges_grow_with_the_stages_and_not_with_their_square() -> None:
    counts = {}
    for devices in (8, 16):
        program = build_program("1f1b", num_devices=devices, num_micro_batches=1)
        plain, together = compile_program(program), compile_program(program, common_update=True)
        counts[devices] = len(together.edge_source) - len(plain.edge_source)

    assert counts == {8: 16, 16: 32}


# ---------------------------------------------------------------- in time


@pytest.mark.parametrize("engine", ["in-order", "simpy"])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_last_stage_updates_when_the_first_has_its_gradient(name: str, engine: str) -> None:
    """F = 1, B = 2: stage k ends its last backward at 3 + 4 * 3 + 2 (3 - k): 21, 19, 17, 15."""
    alone = compile_program(build_program(name, num_devices=4, num_micro_batches=4))

    assert update_starts(alone, engine) == {"0U3": 21.0, "1U3": 19.0, "2U3": 17.0, "3U3": 15.0}
    assert update_starts(common(name), engine) == {"0U3": 21.0, "1U3": 21.0, "2U3": 21.0, "3U3": 21.0}


def test_a_slow_update_of_the_last_stage_is_no_longer_hidden_in_the_drain() -> None:
    """Stage 3 updates for 6 s: alone from 15 to 21, when stage 0 ends; together from 21 to 27."""
    costs = UniformCosts(update=(0.0, 0.0, 0.0, 6.0))
    alone = compile_program(build_program("1f1b", num_devices=4, num_micro_batches=4))

    assert simulate(alone, costs).makespan_s == 21.0
    assert simulate(common("1f1b"), costs).makespan_s == 27.0


@pytest.mark.parametrize("engine", ["in-order", "simpy"])
def test_the_exchange_takes_a_message_there_and_one_back(wired: Cluster, engine: str) -> None:
    """0F0 to 1, over the wire (0.1 + 0.5), 1F0 from 1.6, 1B0 to 4.6, back: 0B0 from 5.2 to 7.2, then twice 0.5 s.

    Device 1 waits from 4.6 to 8.2: for 2.6 s 0B0 is not done, then the exchange is under way.
    """
    graph = common("1f1b", devices=2, micro_batches=1)
    timeline = simulate(graph, TableCosts(default=SENT), cluster=wired, engine=engine)
    idle = metrics(timeline).devices[1].idle_by_cause_s

    assert timeline.end[-1] - timeline.start[-1] == pytest.approx(1.0)
    assert (idle.dependency, idle.reduce) == (near(2.6), near(1.0))
    assert timeline.makespan_s == pytest.approx(9.2)


def test_an_exchange_that_is_free_is_said_to_be(wired: Cluster) -> None:
    together, alone = common("1f1b", devices=2), compile_program(build_program("1f1b", num_devices=2, num_micro_batches=4))
    costs = UniformCosts(transfer_bytes=1.0)

    assert f"{FREE}: no --cluster was given" in costs.notes(together)
    assert not any(FREE in note for note in (*wired.notes(together, costs), *costs.notes(alone)))
    assert f"{FREE}: cluster {wired.name} has no links" in replace(wired, links=()).notes(together, costs)


# ---------------------------------------------------------------- kept


def test_a_timeline_is_read_back_with_it(tmp_path: Path) -> None:
    timeline = simulate(common("1f1b", mini_batches=2), UniformCosts())
    write_trace(tmp_path / "common.json", timeline)
    again = load_timeline(tmp_path / "common.json")

    assert again.graph.options.common_update
    assert (again.end == timeline.end).all()


def test_a_trace_from_before_the_option_has_none(tmp_path: Path) -> None:
    program = build_program("1f1b", num_devices=2, num_micro_batches=2)
    path = tmp_path / "old.json"
    write_trace(path, simulate(compile_program(program), UniformCosts()))
    path.write_text(path.read_text(encoding="utf-8").replace(',"common_update":false', ""), encoding="utf-8")

    assert not load_timeline(path).graph.options.common_update


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("name", [name for name, schedule in SCHEDULES.items() if schedule.continuous])
def test_without_a_flush_there_is_no_moment_for_it(name: str) -> None:
    with pytest.raises(RefusedError, match=r'never has the gradients of all stages at one moment.*clip=Clip\(…, per="stage"\)'):
        common(name, devices=2, micro_batches=2, mini_batches=8)


def test_an_update_of_ones_own_that_would_wait_for_what_stands_behind_it_is_refused() -> None:
    program = written("0F0 2F0 2B0 2U0 0B0 0U0", "1F0 3F0 3B0 1B0 1U0 3U0", m=1, stages=4)

    with pytest.raises(ProgramError, match=r"2U0 stands before 0B0, whose gradient it needs: all stages decide together") as found:
        compile_program(program, common_update=True)
    assert "2U0" in (found.value.grid or "")


def test_what_is_no_switch_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"common_update"):
        compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2), common_update="yes")  # type: ignore[arg-type]  # what users give
