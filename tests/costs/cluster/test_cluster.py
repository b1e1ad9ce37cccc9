"""Times of a graph on a cluster, and what is said of it."""

from dataclasses import replace

import pytest

from schedir.costs.cluster.hardware import Device
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.order.in_order import TaskTimes
from tests.costs.cluster.clusters import H100, INFINIBAND, NVLINK, one_host
from tests.costs.graphs import graph_of
from tests.repository import ROOT


def on_lane(graph: TaskGraph, times: TaskTimes, *, sender: int, receiver: int) -> tuple[set[float], set[float]]:
    lane = next(n for n, lane in enumerate(graph.lanes) if (lane.kind, lane.device, lane.peer) == (LaneKind.LINK, sender, receiver))
    tasks = slice(int(graph.lane_start[lane]), int(graph.lane_start[lane + 1]))
    assert times.latency is not None
    return set(times.duration[tasks].tolist()), set(times.latency[tasks].tolist())


def test_durations_are_divided_by_the_speed_of_the_device() -> None:
    graph = graph_of("1f1b", 2, 2)
    costs = UniformCosts(transfer_bytes=0)
    times = one_host(2, overrides={1: Device(speed=0.5)}).times(graph, costs)

    assert set(times.duration[graph.kind == Kind.FORWARD][:2]) == {1.0}
    assert set(times.duration[(graph.kind == Kind.FORWARD) & (graph.device == 1)]) == {2.0}
    assert set(times.duration[(graph.kind == Kind.BACKWARD) & (graph.device == 1)]) == {4.0}


def test_a_transfer_takes_bytes_over_bandwidth_then_latency() -> None:
    graph = graph_of("1f1b", 2, 2)
    piece = PieceCosts(forward=1, backward=2, bytes=PieceBytes(output=50, boundary=25))
    times = one_host(2).times(graph, TableCosts(default=piece))

    assert on_lane(graph, times, sender=0, receiver=1) == ({0.5}, {0.5})
    assert on_lane(graph, times, sender=1, receiver=0) == ({0.5}, {0.5})  # the gradient of those 50 bytes
    assert times.latency is not None
    assert set(times.latency[: graph.num_compute_tasks]) == {0.0}


def test_every_link_has_its_own_bandwidth() -> None:
    graph = graph_of("1f1b", 3, 2)
    placed = replace(H100, pipeline_devices=((0,), (1,), (8,)))
    times = placed.times(graph, UniformCosts(transfer_bytes=9e9))

    assert on_lane(graph, times, sender=0, receiver=1) == ({9e9 / NVLINK}, {3e-6})
    assert on_lane(graph, times, sender=1, receiver=2) == ({9e9 / INFINIBAND}, {8e-6})


def test_the_cluster_replaces_the_latency_of_costs_that_carry_bytes() -> None:
    graph = graph_of("1f1b", 2, 2)
    times = one_host(2).times(graph, UniformCosts(transfer=7, transfer_bytes=100))

    assert on_lane(graph, times, sender=0, receiver=1) == ({1.0}, {0.5})


def test_costs_without_bytes_keep_the_latency_that_they_state() -> None:
    graph = graph_of("1f1b", 2, 2)
    costs = UniformCosts(transfer=7)
    times = one_host(2).times(graph, costs)

    assert on_lane(graph, times, sender=0, receiver=1) == ({0.0}, {7.0})
    line = "transfers take the stated latency, not the bandwidths of cluster test: the costs carry no bytes"
    assert line in one_host(2).notes(graph, costs)


def test_bandwidths_without_bytes_are_refused() -> None:
    line = (  # formats/README, first errors
        "^cluster h100-64 has bandwidths, but the costs carry no bytes, so transfers would be free: "
        "give --costs with bytes, --transfer-bytes or --transfer$"
    )

    with pytest.raises(ArgumentError, match=line):
        H100.times(graph_of("1f1b", 2, 2), UniformCosts())


def test_one_device_needs_no_bytes() -> None:
    graph = graph_of("1f1b", 1, 2)

    assert H100.times(graph, UniformCosts()).duration.sum() == 6


def test_a_cluster_without_links_leaves_transfers_free_and_says_so() -> None:
    graph = graph_of("1f1b", 2, 2)
    bare = replace(H100, links=(), link_overrides=())

    assert "transfers are free: cluster h100-64 has no links" in bare.notes(graph, UniformCosts())
    assert bare.times(graph, UniformCosts()).latency is None


class OneArray(UniformCosts):
    """Costs that hand out the same times again and again."""

    def times(self, graph: TaskGraph) -> TaskTimes:
        del graph
        return HANDED_OUT


HANDED_OUT = UniformCosts(transfer=0.5).times(graph_of("1f1b", 2, 2))


def test_times_on_a_cluster_leave_the_costs_as_they_are() -> None:
    before = HANDED_OUT.duration.copy()

    times = one_host(2, device=Device(speed=0.5)).times(graph_of("1f1b", 2, 2), OneArray(transfer_bytes=100))

    assert times.duration[0] == 2.0
    assert (HANDED_OUT.duration == before).all()


def test_the_description_is_plain_json() -> None:
    assert H100.parallel(tensor=2).describe(graph_of("1f1b", 2, 2)) == {
        "name": "8 hosts x 8 H100",
        "file": str(ROOT / "tests/data/h100-64.cluster.toml"),
        "num_hosts": 8,
        "devices_per_host": 8,
        "tensor_parallel": 2,
        "data_parallel": 1,
        "pipeline_devices": [[0, 1], [2, 3]],
        "speeds": [1.0, 1.0],
        "links": ["nvlink", "infiniband"],
    }


def test_replicas_that_are_not_simulated_are_said() -> None:
    notes = H100.parallel(data=2).notes(graph_of("1f1b", 2, 2), UniformCosts(transfer_bytes=1))

    assert "only replica 0 of 2 is simulated: the others are taken to be as fast" in notes
