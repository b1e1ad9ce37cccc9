"""The groups of flags that several commands share; the flags' names are the option names of DESIGN and of the Python API."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from schedir.cli.flags.flags import flag, switch
from schedir.cli.flags.values import (
    count,
    counts,
    memory,
    named_value,
    natural,
    one_of,
    path,
    sizes,
    spread,
    stage_groups,
    text,
    times,
    yes_or_no,
)
from schedir.errors import ArgumentError

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
"""Seconds of one unit of time on the command line."""

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
        "xpipe, spectrain, pipeoptim: exact, xpipe-paper, round-trip, spectrain-paper, pipeoptim, … or a number of updates.",
    )
    backward_weights: str | None = flag("--backward-weights", text, "predict|stash", "xpipe, spectrain: what backwards read.")
    waves: int | None = flag("--waves", count, "N", "hanayo: waves, of two stages per device each; 1 if not given.")
    split_backward: bool | None = flag("--split-backward", yes_or_no, "yes|no", "hanayo: I and W apart; yes if not given.")
    activation_limit: int | None = flag(
        "--activation-limit",
        count,
        "N",
        "zb-h2, zb-v, v-half: (stage, micro-batch) pairs alive on a device, for an order by costs.",
    )

    option: tuple[tuple[str, Any], ...] = flag(
        "--option", named_value, "NAME=VALUE", "Any other option of a schedule of your own; may stand several times.", many=True
    )

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by the names that schedules have for them."""
        self._check_named_once()
        values = {member.name: getattr(self, member.name) for member in fields(self) if member.name != "option"}
        return {name: value for name, value in values.items() if value is not None} | dict(self.option)

    def _check_named_once(self) -> None:
        """Refuse an option that is given twice, and a count of the shape, which has a flag of its own."""
        names = [name for name, _ in self.option]
        for name, value in self.option:
            flag_name = f"--{name.removeprefix('num_').replace('_', '-')}"
            if name.removeprefix("num_") in {member.name for member in fields(ShapeOptions)}:
                raise ArgumentError(f"--option {name}={value}: a count has a flag of its own: give {flag_name} {value}")
            if names.count(name) > 1 or (name != "option" and getattr(self, name, None) is not None):
                raise ArgumentError(f"--option {name}: the option is given twice: leave one of them out")

    def only(self, names: Collection[str]) -> ScheduleOptions:
        """Return the options of these names alone."""
        named = {name: value for name, value in self.given().items() if name in names}
        own = {member.name for member in fields(self)} - {"option"}
        others = tuple((name, value) for name, value in named.items() if name not in own)
        return ScheduleOptions(**{name: value for name, value in named.items() if name in own}, option=others)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeOptions:
    """Recomputation."""

    recompute: str | None = flag(
        "--recompute", text, "MODE", "never, except-last, always or selective; or one per stage, comma-separated."
    )
    recompute_start: str | None = flag(
        "--recompute-start", text, "early|on-gradient", "When a recomputation may start; early: before the gradient arrives."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions(RecomputeOptions):
    """Recomputation, skip connections, ties."""

    skips: tuple[tuple[int, ...], ...] | None = flag(
        "--skips", stage_groups, "A-B", "Skip connections, comma-separated: 0-2 leads from stage 0 to 2, over a link of its own."
    )
    ties: tuple[tuple[int, ...], ...] | None = flag(
        "--ties", stage_groups, "A-B", "Stages that hold the same weights, comma-separated: 0-3 for stages 0 and 3."
    )

    def given(self) -> dict[str, Any]:
        """Return the arguments of compile_program that were given."""
        for group in self.skips or ():
            if len(group) != 2:
                raise ArgumentError(f"--skips {'-'.join(map(str, group))} has {len(group)} stages: give two for each, as 0-2")
        values = {member.name: getattr(self, member.name) for member in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions:
    """Costs: one value, or one per stage, comma-separated."""

    forward: tuple[float, ...] | None = flag("--forward", times, "TIME", "Forward of one micro-batch; 1 if nothing is given.")
    backward: tuple[float, ...] | None = flag("--backward", times, "TIME", "Full backward; 2 if nothing is given.")
    input_grad: tuple[float, ...] | None = flag("--input-grad", times, "TIME", "Input-gradient half of a split backward.")
    weight_grad: tuple[float, ...] | None = flag("--weight-grad", times, "TIME", "Weight-gradient half of a split backward.")
    overlapped: tuple[float, ...] | None = flag(
        "--overlapped", times, "TIME", "A forward and a backward run as one; their sum if not given."
    )
    recompute_time: tuple[float, ...] | None = flag("--recompute-time", times, "TIME", "Recomputation; as forward if not given.")
    update: tuple[float, ...] | None = flag("--update", times, "TIME", "Optimizer step of a stage; 0 if not given.")
    predict: tuple[float, ...] | None = flag("--predict", times, "TIME", "Weight prediction of a stage; 0 if not given.")
    transfer: tuple[float, ...] | None = flag("--transfer", times, "TIME", "From one device to another; transfers overlap.")
    transfer_bytes: tuple[float, ...] | None = flag(
        "--transfer-bytes", sizes, "BYTES", "What one transfer carries; --cluster gives the time that it takes."
    )
    skip_bytes: tuple[float, ...] | None = flag(
        "--skip-bytes", sizes, "BYTES", "What a skip connection carries (--skips); as --transfer-bytes if not given."
    )
    unit: str | None = flag("--unit", one_of(*UNITS), "s|ms|us", "Unit of these times; s if not given.")
    costs: Path | None = flag("--costs", path, "FILE", "Costs file (TOML or JSON), hand-written or measured by `schedir profile`.")
    layers_per_stage: tuple[int, ...] | None = flag(
        "--layers-per-stage", counts, "N,N,…", "Cuts costs per layer into stages: consecutive layers of each stage."
    )
    cluster: Path | None = flag("--cluster", path, "FILE", "Cluster file (TOML): devices with their memory and speed, links.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOptions:
    """Sizes."""

    micro_batch_size: int | None = flag("--micro-batch-size", count, "N", "Samples of one micro-batch.")
    mini_batch_size: int | None = flag("--mini-batch-size", count, "N", "Samples of one update, over all micro-batches.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Simulator."""

    engine: str | None = flag("--engine", one_of("auto", "in-order", "simpy"), "auto|in-order|simpy", "auto if not given.")
    seed: int | None = flag("--seed", natural, "N", "Seed of what is random.")
    jitter: float | None = flag(
        "--jitter", spread, "SIGMA", "Draw durations: standard deviation of their logarithm; without it from the costs' samples."
    )
    sends: str | None = flag(
        "--sends", text, "buffered|rendezvous", "buffered if not given; rendezvous: a device waits for its receiver."
    )
    cores: int | None = flag("--cores", count, "N", "All devices are threads on one host with N cores, which they share.")
    memory_limit: float | None = flag("--memory-limit", memory, "BYTES", "Memory of a device (`80 GB`); says whether it fits.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictOptions:
    """Verdict."""

    samples: int | None = flag("--samples", count, "N", "Monte-Carlo: percentiles over so many draws of all durations.")
    require_fit: bool = switch("--require-fit", "Exit with 2 where memory does not fit.")
