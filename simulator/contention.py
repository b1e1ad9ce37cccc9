"""What the devices and links of a graph share on a cluster, and which devices change their speed.

| shared by                                                    | rule                         | demand          | capacity    |
|--------------------------------------------------------------|------------------------------|-----------------|-------------|
| links that leave (enter) by one device's or host's card      | the level's: fair or fifo    | own bandwidth   | the card's  |
| pipeline devices on one physical device                      | fair: they take turns        | all of it       | 1 device    |
| pipeline devices on a host whose cores are stated,           | fair: processor sharing      | 1 core a member | its cores   |
| or on the only host, without a cluster (`shared_cores`)      |                              |                 |             |

What has room for all at once, or one user only, is left out, so that a static run stays one.
"""

from __future__ import annotations

from collections.abc import Iterator

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.cluster.hardware import Sharing
from schedir.costs.cluster.placement import Placement
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.order.in_order import TaskTimes
from simulator.network import Conditions, Shared, SharingRule, Speed

Users = dict[int, float]
"""Demand by lane."""

_RULES = {Sharing.FAIR: SharingRule.FAIR, Sharing.FIFO: SharingRule.FIFO}


def conditions_of(graph: TaskGraph, cluster: Cluster, times: TaskTimes) -> Conditions:
    """Return what lanes of a graph share; lanes whose tasks take no time share nothing."""
    placement = cluster.place(graph.program.num_devices)
    found = (*_cards(graph, placement, times), *_devices(placement), *_cores(placement, cluster))
    return Conditions(shared=tuple(thing for thing in found if _binds(thing)), speeds=_speeds(placement))


def shared_cores(num_devices: int, cores: int) -> Conditions:
    """Return that all devices are threads on one host: of n that compute each works at min(1, cores / n) of its speed."""
    thing = Shared(SharingRule.FAIR, dict.fromkeys(range(num_devices), 1.0), float(cores))
    return Conditions(shared=(thing,) if _binds(thing) else ())


def _speeds(placement: Placement) -> dict[int, Speed]:
    """Return the speeds over time of devices whose speed changes, as factors on the first, which their durations are for."""
    over_time = {lane: placement.speed_over_time(lane) for lane in range(len(placement.groups))}
    return {
        lane: Speed(tuple(since for since, _ in changes), tuple(speed / changes[0][1] for _, speed in changes))
        for lane, changes in over_time.items()
        if len(changes) > 1
    }


def _cards(graph: TaskGraph, placement: Placement, times: TaskTimes) -> Iterator[Shared]:
    # by rule, too: a card that is divided and one that is queued for cannot be one thing
    users: dict[tuple[str, SharingRule], Users] = {}
    for number, lane in enumerate(graph.lanes):
        tasks = graph.lane_range(number)
        if lane.kind is LaneKind.LINK and times.duration[tasks.start : tasks.stop].any():
            link = placement.link_of(lane.device, lane.peer)
            for resource in link.resources:
                users.setdefault((resource, _RULES[link.sharing]), {})[number] = link.bandwidth
    for (_, rule), demand in users.items():
        # the card is as fast as the fastest of the links that go through it
        yield Shared(rule, demand, max(demand.values()))


def _devices(placement: Placement) -> Iterator[Shared]:
    users: dict[int, Users] = {}
    for lane in range(len(placement.groups)):
        for number in placement.numbers(lane):
            users.setdefault(number, {})[lane] = 1.0
    return (Shared(SharingRule.FAIR, demand, 1.0) for demand in users.values())


def _cores(placement: Placement, cluster: Cluster) -> Iterator[Shared]:
    if cluster.cores is None:
        return
    users: dict[int, Users] = {}
    for lane, group in enumerate(placement.groups):
        for member in group:
            here = users.setdefault(member.host, {})
            # a group of several members on one host asks for a core for each of them
            here[lane] = here.get(lane, 0.0) + 1.0
    for demand in users.values():
        yield Shared(SharingRule.FAIR, demand, float(cluster.cores))


def _binds(thing: Shared) -> bool:
    """Return whether its users ever get in each other's way; a lane does not compete with itself."""
    return len(thing.demand) > 1 and (thing.rule is SharingRule.FIFO or sum(thing.demand.values()) > thing.capacity)
