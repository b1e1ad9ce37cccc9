"""From the flags of costs to a cost model and a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from schedir.cli.flags.flags import refuse_given
from schedir.cli.flags.options import ChoosingOptions
from schedir.cli.flags.prediction_options import UNITS, CostOptions
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.costs.cluster.cluster import Cluster
    from schedir.costs.model import CostModel

_BESIDE_A_FILE = ("costs", "layers_per_stage", "cluster", "transfer", "unit")
_CHOOSING = ("forward", "input_grad", "weight_grad", "update", "transfer", "costs")
"""What an order depends on."""
_TIMES = ("forward", "backward", "input_grad", "weight_grad", "overlapped", "update", "predict", "transfer")


def read_costs(options: CostOptions) -> CostModel:
    """Return the costs of a file, or uniform costs of the given times."""
    if options.costs is not None:
        from schedir.costs.files.costs_file import load_costs

        refuse_given(options, f"--costs {options.costs} gives costs already", but=_BESIDE_A_FILE)
        costs = load_costs(options.costs, layers_per_stage=options.layers_per_stage)
        return costs if options.transfer is None else replace(costs, transfer=_one_transfer(options))
    if options.layers_per_stage is not None:
        raise ArgumentError("--layers-per-stage cuts costs per layer, but there is no --costs FILE: give it")
    from schedir.costs.uniform import UniformCosts

    scale = UNITS[options.unit or "s"]
    given: dict[str, Any] = {name: _scaled(getattr(options, name), scale) for name in _TIMES}
    given |= {"recompute": _scaled(options.recompute_time, scale), "transfer_bytes": _scaled(options.transfer_bytes, 1.0)}
    given["skip_bytes"] = _scaled(options.skip_bytes, 1.0)
    return UniformCosts(**_default_times(options, scale) | {name: value for name, value in given.items() if value is not None})


def with_costs(source: str, options: ChoosingOptions, costs: CostOptions) -> ChoosingOptions:
    """Return a schedule's options with the costs, if any are given and it is one that follows costs.

    The costs are those of a micro-batch of their own size, whatever size is asked for.
    """
    return following(source, options, read_costs(costs)) if chooses_order(options, costs) else options


def chooses_order(options: ChoosingOptions, costs: CostOptions) -> bool:
    """Say whether a schedule that follows costs has any to follow."""
    return options.activation_limit is not None or any(getattr(costs, name) is not None for name in _CHOOSING)


def following(source: str, options: ChoosingOptions, costs: CostModel) -> ChoosingOptions:
    """Return a schedule's options with these costs, if it is one that follows costs."""
    return replace(options, option=(*options.option, ("costs", costs))) if follows_costs(source) else options


def follows_costs(source: str) -> bool:
    """Say whether a schedule has an order by costs beside its fixed one; files and functions have not."""
    from schedir.interop.program_files import names_program_file
    from schedir.schedules.registry import find_schedule

    return not names_program_file(source) and "costs" in find_schedule(source).options


def without_costs(options: ChoosingOptions) -> ChoosingOptions:
    """Return what a schedule's fixed order is built from: a limit goes with costs."""
    return replace(options, activation_limit=None)


def _default_times(options: CostOptions, scale: float) -> dict[str, Any]:
    """Return what takes the place of times that are not given, in the unit of the others: forward 1, backward 2 (1 and 1)."""
    defaults = {"forward": scale} if options.forward is None else {}
    if options.backward is None and options.input_grad is None and options.weight_grad is None:
        defaults |= {"input_grad": scale, "weight_grad": scale}
    return defaults


def read_cluster(options: CostOptions) -> Cluster | None:
    """Return the cluster of a file, if one is given."""
    if options.cluster is None:
        return None
    from schedir.costs.cluster.cluster_file import load_cluster

    return load_cluster(options.cluster)


def _scaled(values: Sequence[float] | None, scale: float) -> float | tuple[float, ...] | None:
    """Return times in seconds: one number, or a tuple with one per stage."""
    if values is None:
        return None
    in_seconds = tuple(value * scale for value in values)
    return in_seconds[0] if len(in_seconds) == 1 else in_seconds


def _one_transfer(options: CostOptions) -> float:
    """Return the transfer time that takes the place of the file's."""
    assert options.transfer is not None
    if len(options.transfer) > 1:
        raise ArgumentError(f"--transfer has {len(options.transfer)} values, but with --costs it is one for all: give one")
    return options.transfer[0] * UNITS[options.unit or "s"]
