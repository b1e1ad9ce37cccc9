"""The object that `compare --json` prints: schedir.compare/1."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from schedir.timeline.comparison.compare import Comparison
from schedir.timeline.metrics.report import simulate_report

SCHEMA = "schedir.compare/1"

_DIGITS = 6


def compare_report(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain JSON values; `predicted` and `measured` are reports as `simulate --json` prints them.

    `sources` says what they really are: two predictions can be compared, too. What is not defined is null, never NaN.
    """
    predicted, measured = comparison.timelines
    return {
        "schema": SCHEMA,
        "predicted": simulate_report(predicted, comparison.predicted),
        "measured": simulate_report(measured, comparison.measured),
        "step_error_fraction": _rounded(comparison.step_error_fraction),
        "bubble_error_points": _rounded(comparison.bubble_error_points),
        "duration_error_fraction": _rounded(comparison.duration_error_fraction),
        "duration_error_by_kind": {kind: _rounded(error) for kind, error in comparison.duration_error_by_kind.items()},
        "structural_error_fraction": _rounded(comparison.structural_error_fraction),
        "start_error_fraction": {name: _rounded(error) for name, error in asdict(comparison.start_error_fraction).items()},
        "order_agreement": [_rounded(share) for share in comparison.order_agreement],
        "critical_path_overlap": _rounded(comparison.critical_path_overlap),
        "peak_bytes_error_fraction": [_rounded(error) for error in comparison.peak_bytes_error_fraction],
        "noise_floor_fraction": _rounded(comparison.noise_floor_fraction),
        "verdict": comparison.verdict.value,
        "contention": comparison.contention,
        "measurements": comparison.measurements,
        "ratios": [asdict(row) for row in comparison.ratios],
        "sources": {"predicted": predicted.source.value, "measured": measured.source.value},
    }


def _rounded(value: float | None) -> float | None:
    """Round to six decimals; an infinite error (nothing was measured) is null."""
    return None if value is None or not math.isfinite(value) else round(value, _DIGITS) + 0.0
