"""The tables of a cluster file, schedir.cluster/1, as strict models; what they must keep together `cluster_file` says."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schedir.costs.files.border import BandwidthValue, FlopsValue, LatencyValue, MemoryValue, Strict, TimeValue


class PeakFlops(Strict):
    """Dense peak by number format."""

    fp64: FlopsValue | None = None
    fp32: FlopsValue | None = None
    tf32: FlopsValue | None = None
    fp16: FlopsValue | None = None
    bf16: FlopsValue | None = None
    fp8: FlopsValue | None = None
    fp4: FlopsValue | None = None


class SpeedChange(Strict):
    """Another speed from some second of a run on."""

    at: TimeValue = Field(gt=0)
    speed: float = Field(gt=0, allow_inf_nan=False)


class DeviceFigures(Strict):
    """What a device is; see Device. None: not stated, which leaves the preset's (of an override: the device's) figure."""

    memory: MemoryValue | None = None
    reserved: MemoryValue | None = None
    peak_flops: PeakFlops | None = None
    efficiency: float | None = Field(default=None, gt=0, le=1)
    speed: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    speed_changes: list[SpeedChange] | None = None
    price_per_hour: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class DeviceTable(DeviceFigures):
    """What every device is."""

    preset: str | None = None


class HostsTable(Strict):
    """Hosts, all alike."""

    count: int = Field(ge=1)
    devices_per_host: int = Field(ge=1)
    cores: int | None = Field(default=None, ge=1)


class LinkTable(Strict):
    """A level of links; see LinkLevel."""

    name: str = Field(min_length=1)
    joins: Literal["device", "host", "cluster"]
    bandwidth: BandwidthValue = Field(gt=0)
    latency: LatencyValue = 0.0
    sharing: Literal["none", "fair", "fifo"] = "none"
    per: Literal["device", "host"] = "device"
    efficiency: float = Field(default=1.0, gt=0, le=1)


class PlacementTable(Strict):
    """Which physical devices a pipeline device is."""

    order: str | None = None
    pipeline_devices: list[list[int]] | None = None


class OverrideTable(DeviceFigures):
    """A device or links that differ."""

    device: int | None = Field(default=None, ge=0)
    link: str | None = None
    hosts: list[int] | None = None
    devices: list[int] | None = None
    bandwidth: BandwidthValue | None = Field(default=None, gt=0)
    latency: LatencyValue | None = None


class ClusterFile(Strict):
    """The whole file."""

    schema_: Literal["schedir.cluster/1"] = Field(alias="schema")
    name: str = ""
    device: DeviceTable = Field(default_factory=DeviceTable)
    hosts: HostsTable
    links: list[LinkTable] = Field(default_factory=list)
    placement: PlacementTable = Field(default_factory=PlacementTable)
    overrides: list[OverrideTable] = Field(default_factory=list)
