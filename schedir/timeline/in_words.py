"""What `print` shows of figures and comparisons: a few lines, with the names of the attributes that say more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedir.bytes_text import bytes_text
from schedir.timeline.percent import percent, signed

if TYPE_CHECKING:
    from schedir.timeline.comparison.compare import Comparison
    from schedir.timeline.metrics.metrics import Metrics


def metrics_text(figures: Metrics) -> str:
    """Return time, bubble and what the devices do in at most six lines."""
    devices = figures.devices
    seconds = f"makespan {figures.makespan_s:.6g} s, {figures.seconds_per_mini_batch:.6g} s per mini-batch"
    lines = [f"<Metrics: {seconds}, bubble {percent(figures.bubble_fraction)}"]
    if figures.steady is not None:
        steady = figures.steady
        lines.append(f"steady: {steady.seconds_per_mini_batch:.6g} s per mini-batch, bubble {percent(steady.bubble_fraction)}")
    if figures.recompute_share:
        lines.append(f"recompute: {percent(figures.recompute_share)} of busy, costs {figures.recompute_overhead_s:.6g} s")
    live = max(row.peak_live_activations for row in devices)
    lines.append(
        f"devices: {len(devices)}, busy {_range([row.busy_s for row in devices])} s, "
        f"idle {_range([row.idle_s for row in devices])} s, at most {live} live activations"
    )
    lines.append(f"memory: {_memory(figures)}")
    return "\n  ".join([*lines, "more: .devices, .stages, .links, .critical_path>"])


def _memory(figures: Metrics) -> str:
    if figures.peak_bytes is None:
        return "not modelled"
    return figures.verdict or f"peak {bytes_text(figures.peak_bytes)} on device {figures.peak_device}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.6g}", f"{max(values):.6g}"
    return low if low == high else f"{low} to {high}"


def comparison_text(comparison: Comparison) -> str:
    """Return the step, where its error comes from, and the verdict in five lines."""
    mine, theirs = comparison.predicted, comparison.measured
    step = f"step predicted {mine.step_s:.6g} s, measured {theirs.step_s:.6g} s"
    causes = f"durations {signed(comparison.duration_error_fraction)}, structure {signed(comparison.structural_error_fraction)}"
    known = comparison.noise_floor_fraction
    floor = "not known" if known is None else percent(known)
    named = f": {comparison.contention}" if comparison.contention else ""
    lines = [
        f"<Comparison: {step}: {signed(comparison.step_error_fraction)}",
        f"{causes}, noise floor {floor} ({comparison.measurements} measured)",
        f"bubble of the whole run predicted {percent(mine.bubble_fraction)}, measured {percent(theirs.bubble_fraction)}",
        f"verdict: {comparison.verdict.value}{named}",
        "more: .predicted, .measured, .duration_error_by_kind, .ratios, .timelines>",
    ]
    return "\n  ".join(lines)
