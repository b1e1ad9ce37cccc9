"""The groups of flags that several commands share; the flags' names are the option names of DESIGN and of the Python API."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from schedir.cli.flags import flag
from schedir.cli.values import count, counts, text

NUM_DEVICES = 4
"""Devices where --devices is not given."""
NUM_MICRO_BATCHES = 8
"""Micro-batches where --micro-batches is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """Shape."""

    devices: int | None = flag("--devices", count, "N", f"Devices of the pipeline (p); {NUM_DEVICES} if not given.")
    micro_batches: int | None = flag(
        "--micro-batches", count, "N", f"Micro-batches per update and replica (m); {NUM_MICRO_BATCHES} if not given."
    )
    mini_batches: int | None = flag(
        "--mini-batches", count, "N", "Mini-batches; if not given 1, or 2p + 8 for schedules that never flush."
    )
    stages_per_device: int | None = flag("--stages-per-device", count, "N", "Stages on every device, for schedules that take more.")

    def given(self) -> dict[str, int]:
        """Return the arguments of build_program that were given."""
        values = {
            "num_devices": self.devices,
            "num_micro_batches": self.micro_batches,
            "num_mini_batches": self.mini_batches,
            "stages_per_device": self.stages_per_device,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """Options of single schedules."""

    order: str | None = flag("--order", text, "reverse|fifo", "gpipe: order of the backwards.")
    replicas: tuple[int, ...] | None = flag(
        "--replicas", counts, "N,N,…", "pipedream: devices of each stage, in all as many as --devices (1F1B-RR)."
    )
    weights: str | None = flag("--weights", text, "RULE", "pipedream: stash, vertical-sync or current.")
    horizon: str | None = flag(
        "--horizon",
        text,
        "POLICY|N",
        "xpipe: exact, xpipe-paper, round-trip, spectrain-paper, pipeoptim, … or a number of updates.",
    )
    backward_weights: str | None = flag("--backward-weights", text, "predict|stash", "xpipe: what backwards read.")

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by the names that schedules have for them."""
        values = {member.name: getattr(self, member.name) for member in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeOptions:
    """Recomputation."""

    recompute: str | None = flag(
        "--recompute", text, "MODE", "never, except-last, always or selective; or one per stage, comma-separated."
    )
    recompute_start: str | None = flag(
        "--recompute-start", text, "early|on-gradient", "When a recomputation may start; early: before the gradient arrives."
    )
