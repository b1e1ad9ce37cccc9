"""Clusters: placement, device speeds, links, reductions. The cluster is formats/h100-64.cluster.toml: 8 hosts x 8 H100."""

import math
from dataclasses import replace
from typing import Any

import pytest

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.cluster.cluster_file import load_cluster
from schedir.costs.cluster.groups import Axis
from schedir.costs.cluster.hardware import PRESETS, Device, Joins, Link, LinkLevel, LinkOverride, Owner, Sharing
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.graph import LaneKind, TaskGraph
from schedir.ir.in_order import TaskTimes
from tests.costs.graphs import graph_of, replicated_graph
from tests.repository import ROOT

H100 = load_cluster(ROOT / "tests/data/h100-64.cluster.toml")
NVLINK = 0.8 * 450e9  # bytes/s: efficiency x bandwidth
INFINIBAND = 400e9 / 8


def one_host(num_devices: int, **values: Any) -> Cluster:
    wire = LinkLevel(name="wire", joins=Joins.CLUSTER, bandwidth=100.0, latency=0.5)
    given: dict[str, Any] = {"name": "test", "num_hosts": 1, "devices_per_host": num_devices, "links": (wire,)}
    return Cluster(**given | values)


def on_lane(graph: TaskGraph, times: TaskTimes, *, sender: int, receiver: int) -> tuple[set[float], set[float]]:
    lane = next(n for n, lane in enumerate(graph.lanes) if (lane.kind, lane.device, lane.peer) == (LaneKind.LINK, sender, receiver))
    tasks = slice(int(graph.lane_start[lane]), int(graph.lane_start[lane + 1]))
    assert times.latency is not None
    return set(times.duration[tasks].tolist()), set(times.latency[tasks].tolist())


def test_tensor_groups_lie_inside_a_host_and_stages_across_hosts() -> None:
    placement = H100.parallel(tensor=4, data=2).place(8)

    assert [placement.numbers(device) for device in range(3)] == [(0, 1, 2, 3), (8, 9, 10, 11), (16, 17, 18, 19)]
    assert [placement.host(device) for device in range(8)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_the_order_says_which_devices_are_neighbours() -> None:
    inner = replace(H100, order=(Axis.PIPELINE, Axis.TENSOR, Axis.DATA)).parallel(tensor=2).place(4)

    assert [inner.numbers(device) for device in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_explicit_devices_replace_the_order() -> None:
    placement = replace(H100, pipeline_devices=((0, 1), (8, 9))).place(2)

    assert [placement.numbers(device) for device in range(2)] == [(0, 1), (8, 9)]
    with pytest.raises(ArgumentError, match="places 2 pipeline devices, but the schedule has 3: give one list"):
        replace(H100, pipeline_devices=((0, 1), (8, 9))).place(3)


def test_too_few_devices_are_refused() -> None:
    with pytest.raises(ArgumentError, match="64 devices, but 8 pipeline x 4 tensor x 4 data parallel = 128 are needed"):
        H100.parallel(tensor=4, data=4).place(8)


def test_a_pair_uses_the_nearest_level_that_joins_it() -> None:
    placement = H100.place(64)

    assert placement.link_of(0, 7).level == "nvlink"
    assert placement.link_of(7, 8).level == "infiniband"
    assert placement.link_of(0, 7).bandwidth == NVLINK
    assert placement.link_of(0, 7).latency == 3e-6
    assert placement.link_of(7, 8) == Link(
        "infiniband", INFINIBAND, 8e-6, Sharing.FAIR, ("infiniband out of device 7", "infiniband into device 8")
    )


def test_links_of_a_host_are_shared_by_all_its_devices() -> None:
    network = LinkLevel(name="net", joins=Joins.CLUSTER, bandwidth=1e9, sharing=Sharing.FIFO, per=Owner.HOST)
    placement = replace(H100, links=(network,)).place(64)

    assert placement.link_of(7, 8).resources == ("net out of host 0", "net into host 1")
    assert placement.link_of(3, 9).resources == ("net out of host 0", "net into host 1")


def test_links_that_are_not_shared_occupy_nothing_together() -> None:
    assert H100.place(2).link_of(0, 1).resources == ()


def test_an_override_holds_between_its_hosts_only() -> None:
    placement = H100.place(64)  # hosts 2 and 3: 100 Gbit/s

    assert placement.link_of(16, 24).bandwidth == 100e9 / 8
    assert placement.link_of(24, 16).bandwidth == 100e9 / 8
    assert placement.link_of(8, 16).bandwidth == INFINIBAND
    assert placement.link_of(16, 17).bandwidth == NVLINK


def test_an_override_may_name_devices_and_change_latency_and_efficiency() -> None:
    other = LinkOverride(link="nvlink", devices=(0, 1), latency=1e-3, efficiency=0.4)
    placement = replace(H100, link_overrides=(other,)).place(3)

    assert placement.link_of(0, 1).bandwidth == 0.4 * 450e9
    assert placement.link_of(0, 1).latency == 1e-3
    assert placement.link_of(0, 2).latency == 3e-6


def test_the_slowest_link_of_a_group_counts() -> None:
    placement = replace(H100, pipeline_devices=((0, 15), (1, 23))).place(2)  # 0 -> 1 by nvlink, 15 -> 23 by infiniband

    assert placement.link_of(0, 1).level == "infiniband"


def test_a_hand_over_inside_a_physical_device_is_free_unless_a_level_says_otherwise() -> None:
    shared = replace(H100, pipeline_devices=((0,), (0,)))
    memory = LinkLevel(name="memory", joins=Joins.DEVICE, bandwidth=1e12)

    assert shared.place(2).link_of(0, 1).bandwidth == math.inf
    assert replace(shared, links=(memory, *H100.links)).place(2).link_of(0, 1).bandwidth == 1e12


def test_devices_that_no_level_joins_are_refused() -> None:
    inside = replace(H100, links=H100.links[:1])

    with pytest.raises(
        ArgumentError, match=r"no link of cluster h100-64 joins devices 7 and 8 \(hosts 0 and 1\): add one with joins"
    ):
        inside.place(64).link_of(7, 8)


def test_durations_are_divided_by_the_speed_of_the_device() -> None:
    graph = graph_of("1f1b", 2, 2)
    costs = UniformCosts(transfer_bytes=0)
    times = one_host(2, overrides={1: Device(speed=0.5)}).times(graph, costs)

    assert set(times.duration[graph.kind == Kind.FORWARD][:2]) == {1.0}
    assert set(times.duration[(graph.kind == Kind.FORWARD) & (graph.device == 1)]) == {2.0}
    assert set(times.duration[(graph.kind == Kind.BACKWARD) & (graph.device == 1)]) == {4.0}


def test_a_group_is_as_fast_as_its_slowest_device_and_as_large_as_its_smallest() -> None:
    slow = Device(memory=10e9, reserved=1e9, speed=0.5)
    placement = one_host(4, device=Device(memory=20e9), overrides={3: slow}).parallel(tensor=2).place(2)

    assert placement.speeds.tolist() == [1.0, 0.5]
    assert [placement.limit(device) for device in range(2)] == [20e9, 9e9]
    assert placement.smallest(1) == slow


def test_memory_that_is_not_stated_has_no_limit() -> None:
    assert one_host(1).place(1).limit(0) is None


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


@pytest.mark.parametrize(("replicas", "expected"), [(2, 3.0 + 1.0), (3, 4.0 + 2.0)])
def test_a_reduction_goes_round_a_ring_of_the_replicas(replicas: int, expected: float) -> None:
    graph = replicated_graph(replicas=replicas)
    piece = PieceCosts(forward=1, backward=2, bytes=PieceBytes(gradients=300, output=1, boundary=1))
    times = one_host(replicas + 1).times(graph, TableCosts(default=piece))

    # 2 (r - 1) / r x 300 bytes / (100 bytes/s) + 2 (r - 1) x 0.5 s
    assert times.duration[graph.kind == Kind.REDUCE] == pytest.approx(expected)


def test_reductions_without_bytes_are_said_to_be_free() -> None:
    graph, costs = replicated_graph(), UniformCosts(transfer_bytes=1)

    assert "gradient reductions over replicas are free: the costs carry no bytes" in one_host(3).notes(graph, costs)
    assert set(one_host(3).times(graph, costs).duration[graph.kind == Kind.REDUCE]) == {0.0}


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


def test_the_file_gives_every_figure() -> None:
    device = Device(
        memory=80e9,
        reserved=6e9,
        peak_flops={"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "tf32": 494e12, "fp32": 67e12},
        efficiency=0.45,
        price_per_hour=2.5,
    )

    assert (H100.name, H100.title, H100.num_hosts, H100.devices_per_host, H100.cores) == ("h100-64", "8 hosts x 8 H100", 8, 8, 96)
    assert H100.device == device
    assert H100.overrides == {13: replace(device, speed=0.8)}
    assert H100.links == (
        LinkLevel(name="nvlink", joins=Joins.HOST, bandwidth=450e9, latency=3e-6, efficiency=0.8),
        LinkLevel(name="infiniband", joins=Joins.CLUSTER, bandwidth=50e9, latency=8e-6, sharing=Sharing.FAIR),
    )
    assert H100.link_overrides == (LinkOverride(link="infiniband", hosts=(2, 3), bandwidth=12.5e9),)
    assert H100.order == (Axis.TENSOR, Axis.DATA, Axis.PIPELINE)


def test_presets_leave_room_for_what_a_device_reserves() -> None:
    assert PRESETS["h100-sxm-80gb"].limit == 74e9  # 80 GB less 6 GB
    assert all(preset.limit is not None and preset.limit > 0 for preset in PRESETS.values())


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
