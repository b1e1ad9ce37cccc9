"""Groups of flags that say which program is meant and how it is compiled; their names are the option names of the Python API."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from schedir.cli.flags.flags import flag, switch
from schedir.cli.flags.values import (
    count,
    counts,
    named_value,
    stage_groups,
    text,
    yes_or_no,
)
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.ir.compile_options import CompileOptions

HORIZONS = (
    *("exact", "pipeoptim", "round-trip", "spectrain-paper"),
    *("xpipe-paper", "xpipe-paper-half-even", "xpipe-paper-half-up"),
)
"""The names of all horizon policies: written down here so that --help loads no schedule."""

NUM_DEVICES = 4
"""Devices where --devices is not given."""
NUM_MICRO_BATCHES = 8
"""Micro-batches where --micro-batches is not given."""


STAGES_HELP = "Stages on every device; if not given 2 for schedules that take more than one (hanayo: 2 per wave), else 1."
"""What --stages-per-device means wherever a schedule is named."""


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
    stages_per_device: int | None = flag("--stages-per-device", count, "N", STAGES_HELP)

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

    order: str | None = flag("--order", text, "reverse|fifo", "gpipe: order of the backwards; reverse if not given.")
    replicas: tuple[int, ...] | None = flag(
        "--replicas",
        counts,
        "N,N,…",
        "pipedream: devices of each stage, in all as many as --devices (1F1B-RR); 1 each if not given.",
    )
    weights: str | None = flag(
        "--weights",
        text,
        "RULE",
        "pipedream: weights read: stash, vertical-sync or current; stash if not given. Also the rule of orders of your own.",
    )
    horizon: str | None = flag(
        "--horizon",
        text,
        "POLICY|N",
        f"xpipe, spectrain, pipeoptim: updates that weights are predicted over: a number, or {', '.join(HORIZONS)}; that of the "
        "schedule's own paper if not given.",
    )
    backward_weights: str | None = flag(
        "--backward-weights", text, "predict|stash", "xpipe, spectrain: what backwards read; predict if not given."
    )
    waves: int | None = flag("--waves", count, "N", "hanayo: waves, of two stages per device each; 1 if not given.")
    split_backward: bool | None = flag("--split-backward", yes_or_no, "yes|no", "hanayo: I and W apart; yes if not given.")
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

    def only(self, names: Collection[str]) -> Self:
        """Return the options of these names alone."""
        named = {name: value for name, value in self.given().items() if name in names}
        own = {member.name for member in fields(self)} - {"option"}
        others = tuple((name, value) for name, value in named.items() if name not in own)
        return replace(self, **dict.fromkeys(own) | {name: named[name] for name in own & set(named)}, option=others)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoosingOptions(ScheduleOptions):
    """Options of single schedules."""

    activation_limit: int | None = flag(
        "--activation-limit",
        count,
        "N",
        "zb-h2, zb-v, v-half: most (stage, micro-batch) pairs alive on a device, in an order by costs; its own if not given.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOptions:
    """Options of single schedules."""

    fixed_order: bool = switch("--fixed-order", "zb-h2, zb-v, v-half: the order that does not follow the costs.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeOptions:
    """Recomputation."""

    recompute: str | None = flag(
        "--recompute",
        text,
        "MODE",
        "never, except-last (all but a mini-batch's last micro-batch), always or selective (attention only); or one per stage, "
        "comma-separated. never if not given.",
    )
    recompute_start: str | None = flag(
        "--recompute-start",
        text,
        "early|on-gradient",
        "When a recomputation may start: before the gradient arrives, or with it; early if not given.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions(RecomputeOptions):
    """Recomputation, and what reaches over stages."""

    skips: tuple[tuple[int, ...], ...] | None = flag(
        "--skips", stage_groups, "A-B", "Skip connections, comma-separated: 0-2 leads from stage 0 to 2, over a link of its own."
    )
    ties: tuple[tuple[int, ...], ...] | None = flag(
        "--ties", stage_groups, "A-B", "Stages that hold the same weights, comma-separated: 0-3 for stages 0 and 3."
    )
    common_update: bool = switch(
        "--common-update", "All stages decide together on their updates, as clipping by the model's norm and loss scaling do."
    )

    def options(self) -> CompileOptions:
        """Return how programs are to be compiled; raise ArgumentError for a skip connection of other than two stages."""
        from schedir.ir.compile_options import CompileOptions, written_modes

        for group in self.skips or ():
            if len(group) != 2:
                raise ArgumentError(f"--skips {'-'.join(map(str, group))} has {len(group)} stages: give two for each, as 0-2")
        values: dict[str, Any] = {member.name: getattr(self, member.name) for member in fields(self)}
        given = {name: value for name, value in values.items() if value is not None}
        if self.recompute is not None:
            given["recompute"] = written_modes(self.recompute)
        return CompileOptions(**given)
