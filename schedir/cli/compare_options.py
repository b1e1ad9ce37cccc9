"""Flags of `schedir compare` alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schedir.cli.flags import flag, switch
from schedir.cli.values import count, counts, path

OUT = Path("out")
"""Where files go if no folder is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareShape:
    """Shape."""

    devices: int | None = flag("--devices", count, "N", "Devices of the pipeline (p); 4 if not given.")
    micro_batches: tuple[int, ...] | None = flag(
        "--micro-batches", counts, "N", "Micro-batches per update: one value, or one per schedule, comma-separated; 8 if not given."
    )
    mini_batches: int | None = flag(
        "--mini-batches", count, "N", "Mini-batches of every schedule; enough for a steady state if not given."
    )
    stages_per_device: int | None = flag("--stages-per-device", count, "N", "Stages on every device, for schedules that take more.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOutput:
    """Output."""

    json: bool = switch("--json", "Print JSON instead of text.")
    out: Path | None = flag("--out", path, "FOLDER", "Where the picture goes; out if not given.")

    @property
    def folder(self) -> Path:
        return self.out or OUT
