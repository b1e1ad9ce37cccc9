"""What follows from where devices stand: links between them, speeds, limits."""

import math
from dataclasses import replace

import pytest

from schedir.costs.cluster.hardware import Device, Joins, Link, LinkLevel, LinkOverride, Owner, Sharing
from schedir.errors import ArgumentError
from tests.costs.cluster.clusters import H100, INFINIBAND, NVLINK, one_host


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


def test_a_group_is_as_fast_as_its_slowest_device_and_as_large_as_its_smallest() -> None:
    slow = Device(memory=10e9, reserved=1e9, speed=0.5)
    placement = one_host(4, device=Device(memory=20e9), overrides={3: slow}).parallel(tensor=2).place(2)

    assert placement.speeds.tolist() == [1.0, 0.5]
    assert [placement.limit(device) for device in range(2)] == [20e9, 9e9]
    assert placement.smallest(1) == slow


def test_memory_that_is_not_stated_has_no_limit() -> None:
    assert one_host(1).place(1).limit(0) is None
