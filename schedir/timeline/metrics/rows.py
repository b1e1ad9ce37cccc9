"""Rows of the metrics: one per device, one per stage. Their attributes are the keys of `simulate --json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from schedir.ir.action import COMPUTE_KINDS
from schedir.ir.facts import Facts
from schedir.timeline.metrics.busy import busy_by_kind, idle_of
from schedir.timeline.metrics.idle import Idle, idle_by_cause
from schedir.timeline.metrics.peaks import BytesByClass, Peak
from schedir.timeline.settled import SettledTimes

Hosts = tuple[tuple[int, ...], ...]
"""Devices of every stage, or stages of every device."""


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device: kinds are disjoint and sum to `busy_s`, causes sum to `idle_s`. None: not modelled."""

    device: int
    stages: tuple[int, ...]
    """Stages that it hosts."""
    host: int | None
    busy_s: float
    """Seconds in which its compute lane is occupied."""
    idle_s: float
    """makespan - busy."""
    forward_s: float
    backward_s: float
    input_grad_s: float
    weight_grad_s: float
    overlapped_s: float
    recompute_s: float
    update_s: float
    predict_s: float
    idle_by_cause_s: Idle
    imbalance_s: float
    """Busy seconds of the busiest device less its own: no idle cause, but why an equal share would be faster."""
    peak_live_activations: int
    """Most (stage, micro-batch) pairs alive at once, from the start of F to the end of B (of W where split)."""
    peak_bytes: int | None
    peak_at_s: float | None
    """When the peak is first reached."""
    peak_bytes_by_class: BytesByClass | None
    limit_bytes: int | None
    fits: bool | None


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage: where it stands and which weights it works with (maxima over the compiled run)."""

    stage: int
    devices: tuple[int, ...]
    layers: tuple[str, ...] | None
    """Names of its layers, where the costs know them."""
    weight_versions: int
    """Most distinct parameter sets, true or predicted, alive at once."""
    staleness: int
    """Most updates missing, compared with sequential training."""
    horizon_forward: int | None
    """Most updates predicted over; None where nothing is predicted."""
    horizon_backward: int | None


@dataclass(frozen=True, slots=True)
class DeviceExtras:
    """What is known of devices beyond their spans; None or one value per device."""

    stages: tuple[tuple[int, ...], ...]
    """Stages that each hosts."""
    peaks: tuple[Peak, ...] | None
    limits: tuple[int, ...] | None
    hosts: tuple[int, ...] | None


def device_rows(settled: SettledTimes, facts: Facts, extras: DeviceExtras) -> tuple[DeviceRow, ...]:
    """Return a row for every device."""
    by_kind = busy_by_kind(settled)
    busy = by_kind.sum(axis=1)
    causes = idle_by_cause(settled)
    # makespan less busy, not the sum of the causes: sums of differences would leave a device without a gap a trace of idleness
    idle = np.array([idle_of(settled.makespan, seconds) for seconds in busy.tolist()])
    # turned round, so that a row is a device
    columns = (busy, idle, busy.max() - busy, *by_kind.T)
    seconds = np.array(columns).T.tolist()
    rows = []
    for device, (busy_s, idle_s, imbalance_s, *kinds) in enumerate(seconds):
        rows.append(
            DeviceRow(
                device=device,
                stages=extras.stages[device],
                host=None if extras.hosts is None else extras.hosts[device],
                busy_s=busy_s,
                idle_s=idle_s,
                **dict(zip(_KIND_FIELDS, kinds, strict=True)),
                idle_by_cause_s=causes[device],
                imbalance_s=imbalance_s,
                peak_live_activations=facts.peak_live_activations[device],
                **_memory(device, extras),
            )
        )
    return tuple(rows)


_KIND_FIELDS = tuple(f"{kind.word}_s" for kind in COMPUTE_KINDS)
"""Fields of a row for the kinds, in the order of `Kind`."""


def _memory(device: int, extras: DeviceExtras) -> dict[str, Any]:
    limit = None if extras.limits is None else extras.limits[device]
    found: dict[str, Any] = {"peak_bytes": None, "peak_at_s": None, "peak_bytes_by_class": None, "limit_bytes": limit, "fits": None}
    if extras.peaks is None:
        return found
    peak = extras.peaks[device]
    found |= {"peak_bytes": peak.bytes, "peak_at_s": peak.at_s, "peak_bytes_by_class": peak.by_class}
    return found | {"fits": None if limit is None else peak.bytes <= limit}


def stage_rows(hosts: Hosts, facts: Facts, layers: tuple[tuple[str, ...], ...] | None) -> tuple[StageRow, ...]:
    """Return a row for every stage; `hosts` has the devices of each."""
    return tuple(
        StageRow(
            stage=stage,
            devices=devices,
            layers=None if layers is None else layers[stage],
            weight_versions=facts.weight_versions[stage],
            staleness=facts.staleness[stage],
            horizon_forward=None if facts.horizon_forward is None else facts.horizon_forward[stage],
            horizon_backward=None if facts.horizon_backward is None else facts.horizon_backward[stage],
        )
        for stage, devices in enumerate(hosts)
    )


def stages_of_devices(hosts: Hosts, num_devices: int) -> Hosts:
    """Turn the devices of every stage into the stages of every device, increasing."""
    hosted: list[list[int]] = [[] for _ in range(num_devices)]
    for stage, devices in enumerate(hosts):
        for device in devices:
            hosted[device].append(stage)
    return tuple(tuple(stages) for stages in hosted)
