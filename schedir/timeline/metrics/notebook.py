"""Metrics as an HTML table for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from schedir.timeline.metrics.definitions import DEFINITIONS
from schedir.timeline.metrics.rows import DeviceRow
from schedir.timeline.metrics.steady import Steady

SUMMARY = ("makespan_s", "seconds_per_mini_batch", "bubble_fraction", "bubble_overhead", "recompute_share", "recompute_overhead_s")
"""Names of the figures that a notebook shows."""


def metrics_table(figures: Mapping[str, float], devices: Sequence[DeviceRow], *, steady: Steady | None, verdict: str | None) -> str:
    """Return figures, by name, with their definitions, and a table of devices."""
    rows = [_row((name, _number(value), DEFINITIONS[name])) for name, value in figures.items()]
    if steady is not None:
        text = f"mini-batches {steady.first_mini_batch} to {steady.last_mini_batch}, bubble {_number(steady.bubble_fraction)}"
        rows.append(_row(("steady", _number(steady.seconds_per_mini_batch), text)))
    if verdict is not None:
        rows.append(_row(("verdict", "", verdict)))
    return f"<table>{''.join(rows)}</table>{_devices(devices)}"


def _devices(devices: Sequence[DeviceRow]) -> str:
    names = ("start_up", "drain", "dependency", "transfer", "reduce")
    head = ("device", "stages", "busy_s", "idle_s", *names, "imbalance_s", "peak_live_activations", "peak_bytes")
    body = []
    # a dash, not a zero, where memory is not modelled: as in JSON, nothing may look like a measured nothing
    for row in devices:
        causes = [_number(getattr(row.idle_by_cause_s, name)) for name in names]
        stages = ", ".join(map(str, row.stages))
        peak = "–" if row.peak_bytes is None else f"{row.peak_bytes:,}"
        cells = (str(row.device), stages, _number(row.busy_s), _number(row.idle_s), *causes, _number(row.imbalance_s))
        body.append(_row((*cells, str(row.peak_live_activations), peak)))
    return f"<table>{_row(head, 'th')}{''.join(body)}</table>"


def _row(cells: tuple[str, ...], tag: str = "td") -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _number(value: float) -> str:
    return f"{value:.6g}"
