"""The picture of docs/validation.md; apart, since a machine that only measures need not draw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.validation.figures import Row
from plots.predictions import Predicted, predictions
from plots.saving import save


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw every configuration's predicted and measured step, with the noise floor as a bar."""
    save(predictions([_predicted(row) for row in rows], style="screen", width=10), path)


def _predicted(row: Row) -> Predicted:
    one = row.record.configuration
    recompute = " recompute" if one.recompute == "always" else ""
    return Predicted(
        f"{one.schedule} m={one.num_micro_batches}{recompute}",
        group=one.model,
        predicted_s=row.predicted_s,
        measured_s=row.measured_s,
        noise=row.noise,
    )
