"""What a cluster is made of: devices, links by level, and presets of real devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Device:
    """One physical device."""

    memory: float | None = None
    """Bytes; None: not stated, so nothing is too large."""
    reserved: float = 0.0
    """Bytes taken off before anything "fits": context, communication library, fragmentation."""
    peak_flops: Mapping[str, float] = field(default_factory=dict)
    """Dense peak in FLOP/s by number format: bf16, fp16, fp8, …"""
    efficiency: float = 1.0
    """Share of the peak that a layer reaches."""
    speed: float = 1.0
    """Durations are divided by it: 0.5 = twice as slow."""
    speed_changes: tuple[tuple[float, float], ...] = ()
    """(seconds, speed): from when on in a run it has another speed, also within a task; seconds above 0 and increasing."""
    price_per_hour: float | None = None
    """In any currency; None: not stated."""

    @property
    def limit(self) -> float | None:
        """Bytes that may be used, or None if the memory is not stated."""
        return None if self.memory is None else self.memory - self.reserved


_RESERVED_SHARE = 0.075
"""Assumed for all presets: 6 GB of 80 GB."""
_EFFICIENCY = 0.45
"""Assumed for all presets."""


def _preset(gigabytes: float, **teraflops: float) -> Device:
    return Device(
        memory=gigabytes * 1e9,
        reserved=round(gigabytes * _RESERVED_SHARE, 2) * 1e9,
        peak_flops={name: round(peak * 1e12) * 1.0 for name, peak in teraflops.items()},
        efficiency=_EFFICIENCY,
    )


# NVIDIA's data sheets: "P100" (2016), "V100" (2020), "A100" (2021), "H100" (2023), "H200" (2024); dense figures, which are half
# of those that the later sheets print "with sparsity".
PRESETS: dict[str, Device] = {
    "p100-pcie-16gb": _preset(16, fp16=18.7, fp32=9.3),
    "v100-sxm2-16gb": _preset(16, fp16=125, fp32=15.7),
    "v100-sxm2-32gb": _preset(32, fp16=125, fp32=15.7),
    "a100-sxm-40gb": _preset(40, bf16=312, fp16=312, tf32=156, fp32=19.5),
    "a100-sxm-80gb": _preset(80, bf16=312, fp16=312, tf32=156, fp32=19.5),
    "h100-pcie-80gb": _preset(80, bf16=756, fp16=756, fp8=1513, tf32=378, fp32=51),
    "h100-sxm-80gb": _preset(80, bf16=989, fp16=989, fp8=1979, tf32=494, fp32=67),
    "h200-sxm-141gb": _preset(141, bf16=989, fp16=989, fp8=1979, tf32=494, fp32=67),
}
"""Devices by name; every key of a cluster file's [device] that is given wins over the preset's."""


class Joins(StrEnum):
    """Which pairs a level of links joins, nearest first."""

    DEVICE = "device"
    """Pipeline devices on one physical device."""
    HOST = "host"
    """Devices of one host."""
    CLUSTER = "cluster"
    """Any two devices."""


class Sharing(StrEnum):
    """What happens when several transfers want one link at a time."""

    NONE = "none"
    """Nothing: every pair has its own."""
    FAIR = "fair"
    """They share its bandwidth in equal parts."""
    FIFO = "fifo"
    """The later one waits."""


class Owner(StrEnum):
    """Who has one such link, for sending and for receiving."""

    DEVICE = "device"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLevel:
    """All links of one kind."""

    name: str
    """nvlink, infiniband, …"""
    joins: Joins
    """The pairs that use it, unless a nearer level joins them."""
    bandwidth: float
    """Bytes per second and direction."""
    latency: float = 0.0
    """Seconds from the end of a transfer's time on the link to its arrival."""
    sharing: Sharing = Sharing.NONE
    """What transfers at the same time do to each other."""
    per: Owner = Owner.DEVICE
    """Who owns one such link."""
    efficiency: float = 1.0
    """Share of the bandwidth that transfers reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOverride:
    """Other figures for the links of a level between some hosts or some devices; both ends must be among them."""

    link: str
    """Name of the level."""
    hosts: tuple[int, ...] | None = None
    """Hosts whose devices are meant."""
    devices: tuple[int, ...] | None = None
    """Physical devices that are meant."""
    bandwidth: float | None = None
    """Bytes per second; None: as the level."""
    latency: float | None = None
    """Seconds; None: as the level."""
    efficiency: float | None = None
    """Share of the bandwidth; None: as the level."""


@dataclass(frozen=True, slots=True)
class Link:
    """What a transfer from one pipeline device to another uses."""

    level: str
    """Name of the level; empty for a hand-over inside one physical device."""
    bandwidth: float
    """Bytes per second that transfers reach when alone: bandwidth x efficiency; infinite inside a device."""
    latency: float
    """Seconds behind its time on the link; occupies nothing."""
    sharing: Sharing
    """What transfers that use a common resource do to each other."""
    resources: tuple[str, ...]
    """What it occupies together with other transfers: the sender's way out, then the receiver's way in; () for sharing none."""
