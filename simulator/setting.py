"""What a run stands on: times, what lanes share, memory limits, and what a timeline says of all that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np

from schedir.costs.checks import positive_integer
from schedir.costs.cluster.cluster import Cluster
from schedir.costs.model import CostModel
from schedir.costs.transfers import transfers
from schedir.errors import ArgumentError
from schedir.expect import expect
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from simulator.checks import check_times
from simulator.contention import conditions_of, shared_cores
from simulator.network import Conditions


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """A graph with its costs, on a cluster or without one."""

    graph: TaskGraph
    costs: CostModel
    cluster: Cluster | None
    times: TaskTimes
    """Checked: finite and at least 0."""
    conditions: Conditions
    """What lanes share, and speeds that change."""

    def describe(self) -> dict[str, Any]:
        """Return plain JSON values for a timeline's meta; None for what is not stated."""
        graph, costs = self.graph, self.costs
        samples = costs.micro_batch_samples(graph)
        described = dict(costs.describe(graph))
        found: dict[str, Any] = {
            "costs": described,
            "cluster": None,
            "layers": described.get("layers"),
            "micro_batch_size": samples[0] if samples and len(set(samples)) == 1 else None,
            "mini_batch_size": sum(samples) if samples else None,
            "link_bytes": _link_bytes(graph, costs),
            "limit_bytes": None,
        }
        return found if self.cluster is None else found | _on_cluster(graph, self.cluster, found["mini_batch_size"])

    def notes(self) -> list[str]:
        """Return what is free or left out only because it was not given."""
        return list(self.costs.notes(self.graph) if self.cluster is None else self.cluster.notes(self.graph, self.costs))


def setting_of(graph: TaskGraph, costs: CostModel, cluster: Cluster | None, *, cores: int | None) -> Setting:
    """Put a graph, costs and a cluster or the cores of one host together; raise a SchedirError where they do not fit."""
    expect(graph, TaskGraph, "graph", remedy="give what compile_program returns")
    expect(costs, CostModel, "costs", remedy="give UniformCosts, TableCosts or what load_costs returns")
    expect(cluster, (Cluster, NoneType), "cluster", remedy="give what load_cluster returns, or leave it out")
    times = costs.times(graph) if cluster is None else cluster.times(graph, costs)
    return Setting(graph, costs, cluster, check_times(graph, times), _conditions(graph, cluster, times, cores=cores))


def _conditions(graph: TaskGraph, cluster: Cluster | None, times: TaskTimes, *, cores: int | None) -> Conditions:
    if cores is not None:
        positive_integer("cores", cores)
        if cluster is not None:
            raise ArgumentError(
                f"cores {cores} are those of a single host, but cluster {cluster.name} has its own: state hosts.cores there"
            )
        return shared_cores(graph.program.num_devices, cores)
    return Conditions() if cluster is None else conditions_of(graph, cluster, times)


def _on_cluster(graph: TaskGraph, cluster: Cluster, mini_batch_size: int | None) -> dict[str, Any]:
    placement = cluster.place(graph.program.num_devices)
    devices = range(graph.program.num_devices)
    limits = [placement.limit(device) for device in devices]
    known = [int(limit) for limit in limits if limit is not None]
    return {
        "cluster": dict(cluster.describe(graph)),
        "hosts": [placement.host(device) for device in devices],
        # a verdict over some of the devices would look like one over all
        "limit_bytes": known if len(known) == len(limits) else None,
        "reserved_bytes": [int(placement.smallest(device).reserved) for device in devices],
        "mini_batch_size": None if mini_batch_size is None else mini_batch_size * cluster.data_parallel,
        "data_parallel": cluster.data_parallel,
        "tensor_parallel": cluster.tensor_parallel,
    }


def _link_bytes(graph: TaskGraph, costs: CostModel) -> Mapping[str, int] | None:
    """Return the bytes that cross each link in the whole run, or None if the costs do not state them."""
    size = costs.bytes_of_transfers(graph)
    if size is None:
        return None
    lane = graph.lane[transfers(graph)]
    total = np.bincount(lane, weights=size, minlength=len(graph.lanes))
    return {str(graph.lanes[link]): round(total[link]) for link in np.unique(lane).tolist()}
