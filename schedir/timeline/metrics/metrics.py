"""The figures of a timeline, simulated or measured alike. The definitions stand in `schedir.timeline.metrics.definitions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedir.bytes_text import bytes_text
from schedir.expect import expect
from schedir.ir.facts import facts
from schedir.timeline.metrics.busy import idle_of
from schedir.timeline.metrics.critical_path import CriticalPath, critical_path
from schedir.timeline.metrics.links import LinkRow, link_rows
from schedir.timeline.metrics.notebook import SUMMARY, metrics_table
from schedir.timeline.metrics.peaks import Peak, peaks, verdict
from schedir.timeline.metrics.replay import recompute_overhead
from schedir.timeline.metrics.rows import DeviceExtras, DeviceRow, StageRow, device_rows, stage_rows, stages_of_devices
from schedir.timeline.metrics.steady import Steady, steady_state
from schedir.timeline.percent import percent
from schedir.timeline.settled import settle
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Percentiles:
    """What seeded noise makes of a prediction: figures over samples, each by mean, p50, p95 and p99."""

    samples: int
    seed: int
    seconds_per_mini_batch: Mapping[str, float]
    bubble_fraction: Mapping[str, float]


@dataclass(frozen=True, slots=True, repr=False)
class Metrics:
    """All figures of a timeline under the names of `simulate --json`. None: not modelled."""

    makespan_s: float
    """Last end - first start."""
    seconds_per_mini_batch: float
    """makespan / mini-batches, start-up and drain included."""
    samples_per_s: float | None
    """Samples of a mini-batch over all replicas, by its seconds (steady where there is a steady state)."""
    tokens_per_s: float | None
    """None: no costs state tokens yet."""
    model_flops_utilization: float | None
    """None: no costs state FLOPs yet."""
    bubble_fraction: float
    """1 - busy seconds / (devices x makespan)."""
    bubble_overhead: float
    """Idle seconds / busy seconds; infinite where devices only wait."""
    recompute_share: float
    """Seconds of recomputation / busy seconds."""
    recompute_overhead_s: float
    """Makespan - makespan of the same graph when recomputation takes no time."""
    device_span_s: float
    """Largest (last end - first start) of one device: what the zero-bubble papers measure."""
    steady: Steady | None
    """None where there are too few mini-batches."""
    percentiles: Percentiles | None
    peak_bytes: int | None
    """Largest peak of a device."""
    peak_device: int | None
    fits: bool | None
    """No device exceeds its limit; None without memory or limits."""
    verdict: str | None
    """One line: what does not fit, or which device is fullest."""
    devices: tuple[DeviceRow, ...]
    stages: tuple[StageRow, ...]
    links: tuple[LinkRow, ...]
    critical_path: CriticalPath

    @property
    def step_s(self) -> float:
        """Seconds of one mini-batch, of the steady state where there is one: what rankings order by."""
        return self.seconds_per_mini_batch if self.steady is None else self.steady.seconds_per_mini_batch

    def _repr_html_(self) -> str:
        shown = {name: getattr(self, name) for name in SUMMARY}
        return metrics_table(shown, self.devices, steady=self.steady, verdict=self.verdict)

    def __repr__(self) -> str:
        devices = self.devices
        seconds = f"makespan {self.makespan_s:.6g} s, {self.seconds_per_mini_batch:.6g} s per mini-batch"
        lines = [f"<Metrics: {seconds}, bubble {percent(self.bubble_fraction)}"]
        if self.steady is not None:
            steady = self.steady
            lines.append(f"steady: {steady.seconds_per_mini_batch:.6g} s per mini-batch, bubble {percent(steady.bubble_fraction)}")
        if self.recompute_share:
            lines.append(f"recompute: {percent(self.recompute_share)} of busy, costs {self.recompute_overhead_s:.6g} s")
        live = max(row.peak_live_activations for row in devices)
        lines.append(
            f"devices: {len(devices)}, busy {_range([row.busy_s for row in devices])} s, "
            f"idle {_range([row.idle_s for row in devices])} s, at most {live} live activations"
        )
        lines.append(f"memory: {_memory_text(self)}")
        return "\n  ".join([*lines, "more: .devices, .stages, .links, .critical_path>"])


def _memory_text(figures: Metrics) -> str:
    if figures.peak_bytes is None:
        return "not modelled"
    return figures.verdict or f"peak {bytes_text(figures.peak_bytes)} on device {figures.peak_device}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.6g}", f"{max(values):.6g}"
    return low if low == high else f"{low} to {high}"


def metrics(timeline: Timeline, *, percentiles: Percentiles | None = None) -> Metrics:
    """Return the figures of a timeline; raise ArgumentError if it has no spans."""
    expect(timeline, Timeline, "timeline", remedy="give what simulate, train(…).timeline or load_timeline returns")
    settled = settle(timeline)
    graph, meta = timeline.graph, timeline.meta
    known = facts(graph)
    hosts = graph.stage_devices()
    extras = DeviceExtras(
        stages=stages_of_devices(hosts, graph.program.num_devices),
        peaks=peaks(timeline),
        limits=_per_device(meta, "limit_bytes"),
        hosts=_per_device(meta, "hosts"),
    )
    rows = device_rows(settled, known, extras)
    busy = sum(row.busy_s for row in rows)
    steady = steady_state(timeline, busy)
    seconds = settled.makespan / graph.program.num_mini_batches
    first, last = settled.lane_bounds()
    # the order of the fields is that of the report, so it is kept here
    return Metrics(
        makespan_s=settled.makespan,
        seconds_per_mini_batch=seconds,
        samples_per_s=_rate(meta.get("mini_batch_size"), seconds if steady is None else steady.seconds_per_mini_batch),
        tokens_per_s=None,
        model_flops_utilization=None,
        bubble_fraction=idle_of(1.0, busy / (len(rows) * settled.makespan)) if settled.makespan > 0 else 0.0,
        bubble_overhead=_ratio(sum(row.idle_s for row in rows), busy),
        recompute_share=_ratio(sum(row.recompute_s for row in rows), busy),
        recompute_overhead_s=recompute_overhead(settled),
        device_span_s=float((last - first).max()),
        steady=steady,
        percentiles=percentiles,
        **_memory(extras, _per_device(meta, "reserved_bytes")),
        devices=rows,
        stages=stage_rows(hosts, known, meta.get("layers")),
        links=link_rows(settled, meta.get("link_bytes")),
        critical_path=critical_path(settled),
    )


def _memory(extras: DeviceExtras, reserved: tuple[int, ...] | None) -> dict[str, Any]:
    found: tuple[Peak, ...] | None = extras.peaks
    if found is None:
        return {"peak_bytes": None, "peak_device": None, "fits": None, "verdict": None}
    # of equal ones the first
    device = max(range(len(found)), key=lambda index: (found[index].bytes, -index))
    limits = extras.limits
    return {
        "peak_bytes": found[device].bytes,
        "peak_device": device,
        "fits": None if limits is None else all(peak.bytes <= limit for peak, limit in zip(found, limits, strict=True)),
        "verdict": None if limits is None else verdict(found, limits, reserved),
    }


def _per_device(meta: Mapping[str, Any], key: str) -> tuple[int, ...] | None:
    values = meta.get(key)
    return None if values is None else tuple(values)


def _ratio(part: float, whole: float) -> float:
    if whole > 0:
        return part / whole
    return float("inf") if part > 0 else 0.0


def _rate(samples: int | None, seconds: float) -> float | None:
    return None if samples is None or not seconds > 0 else samples / seconds
