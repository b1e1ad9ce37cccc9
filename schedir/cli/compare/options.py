"""Flags of `schedir compare` alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedir.cli.flags.flags import flag, switch
from schedir.cli.flags.options import STAGES_HELP
from schedir.cli.flags.recipes import RECIPE_HELP
from schedir.cli.flags.values import count, counts, length, one_of, path, text
from schedir.cli.flags.workers import WORKERS, WORKERS_HELP, timeout_flag

OUT = Path("out")
"""Where files go if no folder is named."""
PICTURE = "compare.png"
"""Name of the picture in that folder, the same for every comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareShape:
    """Shape."""

    devices: int | None = flag("--devices", count, "N", "Devices of the pipeline (p); 4 if not given, 2 with --model.")
    micro_batches: tuple[int, ...] | None = flag(
        "--micro-batches",
        counts,
        "N",
        "Micro-batches per update: one value, or one per schedule, comma-separated; 8 if not given, 4 with --model.",
    )
    mini_batches: int | None = flag(
        "--mini-batches", count, "N", "Mini-batches of every schedule; enough for a steady state if not given."
    )
    stages_per_device: int | None = flag("--stages-per-device", count, "N", STAGES_HELP)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """Training."""

    model: str | None = flag("--model", text, "RECIPE", f"Train it, too: {RECIPE_HELP}")
    rounds: int | None = flag("--rounds", count, "N", "Measured runs of every schedule, after one that warms up; 7 if not given.")
    repeats: int | None = flag("--repeats", count, "N", "Mini-batches that the profile before every run measures; 5 if not given.")
    workers: str | None = flag("--workers", one_of(*WORKERS), "KIND", WORKERS_HELP)
    time_limit: float | None = flag(
        "--time-limit", length, "SECONDS", "Begin no round that would end later; no limit if not given."
    )
    timeout: float | None = timeout_flag()

    def given(self) -> dict[str, Any]:
        """Return the arguments of TrainingSetting that were given."""
        values = {
            "rounds": self.rounds,
            "repeats": self.repeats,
            "time_limit_s": self.time_limit,
            "workers": self.workers,
            "timeout": self.timeout,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOutput:
    """Output."""

    json: bool = switch(
        "--json", "Print JSON (schedir.side-by-side/1; of one program's timelines schedir.compare/1) instead of text."
    )
    out: Path | None = flag("--out", path, "FOLDER", "Where pictures, traces and report.json go; out if not given.")

    @property
    def folder(self) -> Path:
        return self.out or OUT


def save_picture(figure: Any, folder: Path) -> str:
    """Write the picture of a comparison and return where it is; what stood there before is said to be replaced."""
    from plots import save

    place = folder / PICTURE
    replaced = " (in place of the one of an earlier comparison)" if place.exists() else ""
    return f"{save(figure, place)}{replaced}"
