"""Where the devices of a pipeline stand in a cluster, and what follows for each of them and for each pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from schedir.costs.cluster.hardware import Device, Joins, Link, LinkLevel, LinkOverride, Owner, Sharing
from schedir.errors import ArgumentError
from schedir.ir.arrays import Floats

INSIDE = Link(level="", bandwidth=math.inf, latency=0.0, sharing=Sharing.NONE, resources=())
"""A hand-over between two pipeline devices on one physical device, where no level is given for that: free."""


@dataclass(frozen=True, slots=True)
class Member:
    """A physical device of a pipeline device."""

    number: int
    """Physical number."""
    host: int
    """Its host."""
    device: Device
    """What it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Pipeline devices as groups of physical ones."""

    cluster: str
    """Name of the cluster."""
    groups: tuple[tuple[Member, ...], ...]
    """Physical devices of each pipeline device; several share the work (tensor parallel) and are as fast as the slowest."""
    levels: tuple[LinkLevel, ...]
    """Nearest first."""
    overrides: tuple[LinkOverride, ...]
    """Later ones win."""
    speeds: Floats = field(init=False)
    """float64 (num_devices): durations of a pipeline device are divided by it."""
    _links: dict[tuple[int, int], Link] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        slowest = [min(member.device.speed for member in group) for group in self.groups]
        object.__setattr__(self, "speeds", np.array(slowest))

    def speed_over_time(self, device: int) -> tuple[tuple[float, float], ...]:
        """Return (seconds, speed) of a pipeline device, the first at 0; only that one where its speed never changes."""
        #   seconds       0      5      9             a group works in step, so it is as fast as its slowest member:
        #   member 0      1 ─────────── 0.5           a change of one is a moment to look at all
        #   member 1      1 ──── 0.8 ────────
        #   the group     1      0.8    0.5
        members = [member.device for member in self.groups[device]]
        changes = sorted({seconds for member in members for seconds, _ in member.speed_changes})
        return tuple((now, min(_speed_at(member, now) for member in members)) for now in (0.0, *changes))

    def numbers(self, device: int) -> tuple[int, ...]:
        """Return the physical numbers of a pipeline device."""
        return tuple(member.number for member in self.groups[device])

    def host(self, device: int) -> int:
        """Return the host of a pipeline device's first physical device."""
        return self.groups[device][0].host

    def smallest(self, device: int) -> Device:
        """Return the physical device of a pipeline device that may use the fewest bytes."""
        members = (member.device for member in self.groups[device])
        return min(members, key=lambda member: math.inf if member.limit is None else member.limit)

    def limit(self, device: int) -> float | None:
        """Return the bytes that each physical device of a pipeline device may use, or None if they are not stated."""
        return self.smallest(device).limit

    def link_of(self, sender: int, receiver: int) -> Link:
        """Return what a transfer between two pipeline devices uses; raise ArgumentError where no level joins them.

        In groups the members send side by side, each to its counterpart, so the slowest of their links counts.
        """
        pair = (sender, receiver)
        if pair not in self._links:
            found = [self._member_link(*ends) for ends in zip(self.groups[sender], self.groups[receiver], strict=False)]
            # slowest: least bandwidth, and of equal ones the longest latency
            self._links[pair] = min(found, key=lambda link: (link.bandwidth, -link.latency))
        return self._links[pair]

    def ring(self, devices: Sequence[int]) -> tuple[float, float]:
        """Return (lowest bandwidth, highest latency) of the links of a ring through these pipeline devices."""
        links = [self.link_of(here, there) for here, there in zip(devices, (*devices[1:], devices[0]), strict=True)]
        return min(link.bandwidth for link in links), max(link.latency for link in links)

    def _member_link(self, sender: Member, receiver: Member) -> Link:
        # levels stand nearest first
        level = next((level for level in self.levels if _joined(level.joins, sender, receiver)), None)
        # HOST and CLUSTER join a device with itself, too, but nothing leaves it: only a level of its own makes that cost anything
        if sender.number == receiver.number and (level is None or level.joins is not Joins.DEVICE):
            return INSIDE
        if level is None:
            raise ArgumentError(
                f"no link of cluster {self.cluster} joins devices {sender.number} and {receiver.number} "
                f'(hosts {sender.host} and {receiver.host}): add one with joins = "cluster"'
            )
        return _link(self._overridden(level, sender, receiver), sender, receiver)

    def _overridden(self, level: LinkLevel, sender: Member, receiver: Member) -> LinkLevel:
        # one on top of the other, so that a later override may change what an earlier one left
        for other in self.overrides:
            hosts_match = other.hosts is None or {sender.host, receiver.host} <= set(other.hosts)
            devices_match = other.devices is None or {sender.number, receiver.number} <= set(other.devices)
            if other.link == level.name and hosts_match and devices_match:
                level = replace(
                    level,
                    bandwidth=level.bandwidth if other.bandwidth is None else other.bandwidth,
                    latency=level.latency if other.latency is None else other.latency,
                    efficiency=level.efficiency if other.efficiency is None else other.efficiency,
                )
        return level


def _speed_at(device: Device, now: float) -> float:
    # changes stand in the order of time: the last that has happened holds
    return next((speed for seconds, speed in reversed(device.speed_changes) if seconds <= now), device.speed)


def _joined(joins: Joins, sender: Member, receiver: Member) -> bool:
    match joins:
        case Joins.DEVICE:
            return sender.number == receiver.number
        case Joins.HOST:
            return sender.host == receiver.host
        case Joins.CLUSTER:
            return True


def _link(level: LinkLevel, sender: Member, receiver: Member) -> Link:
    # A name stands for one piece of wire: transfers whose links have a name in common share it.
    #
    #     per host      host 0 ── out of host 0 ──▶ ── into host 1 ── host 1        all pairs of the two hosts, and what else
    #                                                                               leaves the one or enters the other
    resources: tuple[str, ...] = ()
    if level.sharing is not Sharing.NONE:
        ends = (sender.number, receiver.number) if level.per is Owner.DEVICE else (sender.host, receiver.host)
        resources = (f"{level.name} out of {level.per} {ends[0]}", f"{level.name} into {level.per} {ends[1]}")
    return Link(level.name, level.bandwidth * level.efficiency, level.latency, level.sharing, resources)
