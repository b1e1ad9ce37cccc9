"""Metrics as an HTML table for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from schedir.timeline.metrics.definitions import DEFINITIONS

if TYPE_CHECKING:
    from schedir.timeline.metrics.metrics import Metrics

_SUMMARY = ("makespan_s", "seconds_per_mini_batch", "bubble_fraction", "bubble_overhead", "recompute_share", "recompute_overhead_s")


def metrics_table(figures: Metrics) -> str:
    """Return the main figures with their definitions, and a table of devices."""
    rows = [_row((name, _number(getattr(figures, name)), DEFINITIONS[name])) for name in _SUMMARY]
    if figures.steady is not None:
        steady = figures.steady
        text = f"mini-batches {steady.first_mini_batch} to {steady.last_mini_batch}, bubble {_number(steady.bubble_fraction)}"
        rows.append(_row(("steady", _number(steady.seconds_per_mini_batch), text)))
    if figures.verdict is not None:
        rows.append(_row(("verdict", "", figures.verdict)))
    return f"<table>{''.join(rows)}</table>{_devices(figures)}"


def _devices(figures: Metrics) -> str:
    names = ("start_up", "drain", "dependency", "transfer", "reduce")
    head = ("device", "stages", "busy_s", "idle_s", *names, "imbalance_s", "peak_live_activations", "peak_bytes")
    body = []
    # a dash, not a zero, where memory is not modelled: as in JSON, nothing may look like a measured nothing
    for row in figures.devices:
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
