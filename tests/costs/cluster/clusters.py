"""Clusters for tests: formats/h100-64.cluster.toml, which is 8 hosts x 8 H100, and one host with a wire."""

from typing import Any

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.cluster.cluster_file import load_cluster
from schedir.costs.cluster.hardware import Joins, LinkLevel
from tests.repository import ROOT

H100 = load_cluster(ROOT / "tests/data/h100-64.cluster.toml")
NVLINK = 0.8 * 450e9
"""bytes/s: efficiency x bandwidth."""
INFINIBAND = 400e9 / 8
"""bytes/s."""


def one_host(num_devices: int, **values: Any) -> Cluster:
    wire = LinkLevel(name="wire", joins=Joins.CLUSTER, bandwidth=100.0, latency=0.5)
    given: dict[str, Any] = {"name": "test", "num_hosts": 1, "devices_per_host": num_devices, "links": (wire,)}
    return Cluster(**given | values)
