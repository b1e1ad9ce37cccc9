"""Clusters: which physical devices a pipeline device is, how fast, how large, and what a transfer between two of them takes.

duration of a task      = duration by the costs / speed of its device
duration of a transfer  = bytes / (bandwidth x efficiency), on the link's lane; then its latency, which occupies nothing
duration of a reduction = 2 (r - 1) / r x gradient bytes / slowest bandwidth + 2 (r - 1) x latency: a ring over r replicas
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from schedir.costs.checks import positive_integer
from schedir.costs.cluster.exchanges import add_common_update, add_reductions
from schedir.costs.cluster.groups import DEFAULT_ORDER, Axis, groups_in_order
from schedir.costs.cluster.hardware import Device, LinkLevel, LinkOverride
from schedir.costs.cluster.placement import Member, Placement
from schedir.costs.model import CostModel
from schedir.costs.transfers import transfers
from schedir.errors import ArgumentError
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.lanes import LaneKind
from schedir.ir.order.in_order import TaskTimes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cluster:
    """Devices, hosts, links and placement. Physical devices are numbered host after host."""

    name: str
    """What errors and reports call it."""
    num_hosts: int
    """Hosts."""
    devices_per_host: int
    """Physical devices of each host."""
    device: Device = field(default_factory=Device)
    """What every device is, save for `overrides`."""
    cores: int | None = None
    """CPU cores of each host, which devices that are threads share; None: not stated."""
    links: tuple[LinkLevel, ...] = ()
    """Levels, nearest first: a pair uses the first one that joins it."""
    order: tuple[Axis, Axis, Axis] = DEFAULT_ORDER
    """Innermost first: how physical devices are given to groups."""
    pipeline_devices: tuple[tuple[int, ...], ...] | None = None
    """Physical devices of each pipeline device, instead of `order`."""
    overrides: Mapping[int, Device] = field(default_factory=dict)
    """Devices that differ, by physical number."""
    link_overrides: tuple[LinkOverride, ...] = ()
    """Links that differ; later ones win."""
    tensor_parallel: int = 1
    """Physical devices of each pipeline device."""
    data_parallel: int = 1
    """Replicas of the whole pipeline; replica 0 is placed."""
    title: str = ""
    """What its file says about it."""
    file: str | None = None
    """The file that it was read from."""
    _placements: dict[int, Placement] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By number of pipeline devices: a placement remembers its links, and sweeps ask again and again."""

    @property
    def num_devices(self) -> int:
        """Physical devices."""
        return self.num_hosts * self.devices_per_host

    def host_of(self, device: int) -> int:
        """Return the host of a physical device."""
        return device // self.devices_per_host

    def parallel(self, *, tensor: int = 1, data: int = 1) -> Cluster:
        """Return the cluster with so many physical devices per pipeline device and replicas of the pipeline."""
        tensor, data = positive_integer("tensor_parallel", tensor), positive_integer("data_parallel", data)
        return replace(self, tensor_parallel=tensor, data_parallel=data)

    def place(self, num_devices: int) -> Placement:
        """Return where the pipeline's devices stand; raise ArgumentError where there are too few physical devices."""
        if num_devices not in self._placements:
            groups = tuple(tuple(map(self._member, group)) for group in self._groups(num_devices))
            self._placements[num_devices] = Placement(self.name, groups, self.links, self.link_overrides)
        return self._placements[num_devices]

    def times(self, graph: TaskGraph, costs: CostModel) -> TaskTimes:
        """Return durations and latencies of all tasks on this cluster, in seconds, at the speeds of a run's start.

        Transfers take their time from the links and the costs' bytes. Where the costs carry no bytes, but state a latency,
        they take that. Raises ArgumentError where they state neither, or where no level joins two devices.
        """
        base = costs.times(graph)
        placement = self.place(graph.program.num_devices)
        duration = base.duration.copy()  # the costs may hand out one array again and again
        count = graph.num_compute_tasks
        duration[:count] /= placement.speeds[graph.device[:count]]
        chosen = transfers(graph)
        #   costs carry bytes                        bandwidth and latency of the link
        #   no bytes, but a latency (0 included)     that latency: somebody knows better than the cluster
        #   neither                                  refused: transfers would be free on a cluster that has bandwidths
        latency = base.latency
        if chosen.stop > chosen.start and self.links:
            size = self._bytes(graph, costs)
            if size is not None:
                bandwidth, latency = _link_columns(graph, placement)
                duration[chosen] = size / bandwidth[chosen]
        add_reductions(graph, costs, placement, duration=duration)
        add_common_update(graph, placement, duration=duration)
        return TaskTimes(duration, latency, base.gap)

    def notes(self, graph: TaskGraph, costs: CostModel) -> tuple[str, ...]:
        """Return what is free or left out only because it was not given, with these costs on this cluster."""
        notes = list(costs.notes(graph, has_cluster=True))
        chosen = transfers(graph)
        if chosen.stop > chosen.start:
            notes += self._transfer_notes(graph, costs)
        if not self.links and any(lane.over_model for lane in graph.lanes):
            notes.append(f"the exchange of what all stages decide their updates by is free: cluster {self.name} has no links")
        if any(lane.over_replicas for lane in graph.lanes) and costs.unit_bytes(graph) is None:
            notes.append("gradient reductions over replicas are free: the costs carry no bytes")
        if self.data_parallel > 1:
            notes.append(f"only replica 0 of {self.data_parallel} is simulated: the others are taken to be as fast")
        return tuple(notes)

    def _transfer_notes(self, graph: TaskGraph, costs: CostModel) -> list[str]:
        if not self.links:
            return [] if costs.states_transfers else [f"transfers are free: cluster {self.name} has no links"]
        if costs.bytes_of_transfers(graph) is None:
            return [f"transfers take the stated latency, not the bandwidths of cluster {self.name}: the costs carry no bytes"]
        return []

    def describe(self, graph: TaskGraph) -> Mapping[str, Any]:
        """Return the cluster as plain JSON values, as under `cluster` in `simulate --json`."""
        placement = self.place(graph.program.num_devices)
        changes = [placement.speed_over_time(device)[1:] for device in range(len(placement.groups))]
        described = {
            "name": self.title or self.name,
            "file": self.file,
            "num_hosts": self.num_hosts,
            "devices_per_host": self.devices_per_host,
            "tensor_parallel": self.tensor_parallel,
            "data_parallel": self.data_parallel,
            "pipeline_devices": [list(placement.numbers(device)) for device in range(len(placement.groups))],
            "speeds": placement.speeds.tolist(),
            "links": [level.name for level in self.links],
        }
        return described | ({"speed_changes": [list(map(list, each)) for each in changes]} if any(changes) else {})

    def _bytes(self, graph: TaskGraph, costs: CostModel) -> Floats | None:
        """Return the bytes of all transfers, or None where the costs state a latency instead."""
        size = costs.bytes_of_transfers(graph)
        if size is None and not costs.states_transfers:
            raise ArgumentError(
                f"cluster {self.name} has bandwidths, but the costs carry no bytes, so transfers would be free: "
                "give --costs with bytes, --transfer-bytes or --transfer"
            )
        return size

    def __repr__(self) -> str:
        links = ", ".join(level.name for level in self.links) or "none"
        return f"<Cluster {self.name}: {self.num_devices} devices on {self.num_hosts} hosts, links: {links}>"

    def _member(self, number: int) -> Member:
        return Member(number, self.host_of(number), self.overrides.get(number, self.device))

    def _groups(self, num_devices: int) -> list[tuple[int, ...]]:
        """Return the physical devices of each pipeline device."""
        if self.pipeline_devices is not None:
            if len(self.pipeline_devices) != num_devices:
                raise ArgumentError(
                    f"cluster {self.name} places {len(self.pipeline_devices)} pipeline devices, but the schedule has "
                    f"{num_devices}: give one list in pipeline_devices for each"
                )
            return list(self.pipeline_devices)
        sizes = {Axis.TENSOR: self.tensor_parallel, Axis.DATA: self.data_parallel, Axis.PIPELINE: num_devices}
        needed = math.prod(sizes.values())
        if needed > self.num_devices:
            raise ArgumentError(
                f"cluster {self.name} has {self.num_devices} devices, but {num_devices} pipeline x {self.tensor_parallel} tensor x "
                f"{self.data_parallel} data parallel = {needed} are needed: use fewer, or a larger cluster"
            )
        return groups_in_order(self.order, sizes)


def _link_columns(graph: TaskGraph, placement: Placement) -> tuple[Floats, Floats]:
    """Return bandwidth and latency of every task's link, float64 (num_tasks); 1 and 0 where it is no transfer."""
    links = [placement.link_of(lane.device, lane.peer) if lane.kind is LaneKind.LINK else None for lane in graph.lanes]
    bandwidth = [1.0 if link is None else link.bandwidth for link in links]
    latency = [0.0 if link is None else link.latency for link in links]
    # one link a lane, and tasks are numbered lane by lane: lanes' figures, each as often as its lane has tasks
    lengths = np.diff(graph.lane_start)
    return np.repeat(bandwidth, lengths), np.repeat(latency, lengths)
