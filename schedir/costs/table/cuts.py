"""How the layers of a model are cut into stages: numbers of consecutive layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from schedir.costs.checks import positive_integer
from schedir.errors import ArgumentError


def even_split(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Return numbers of layers per stage that differ by at most one, the larger ones first.

    Raises ArgumentError where there are fewer layers than stages.
    """
    positive_integer("num_stages", num_stages)
    if num_layers < num_stages:
        raise ArgumentError(f"{num_layers} layers cannot fill {num_stages} stages: use at most {num_layers} stages")
    share, rest = divmod(num_layers, num_stages)
    return (share + 1,) * rest + (share,) * (num_stages - rest)


def check_cut(layers_per_stage: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """Return the cut if it gives every stage a layer and shares out all of them; raise ArgumentError if not."""
    cut = tuple(positive_integer("layers_per_stage", count) for count in layers_per_stage)
    if sum(cut) != num_layers:
        raise ArgumentError(f"layers_per_stage sums to {sum(cut)} layers, but the costs have {num_layers}: share out all of them")
    return cut


def layers_of_stages(layers_per_stage: Sequence[int] | None, *, num_layers: int, num_stages: int, name: str) -> list[slice]:
    """Return the layers of every stage; raise ArgumentError, naming the costs, where no cut fits so many stages."""
    if layers_per_stage is None:
        example = ",".join(map(str, even_split(num_layers, num_stages)))
        raise ArgumentError(
            f"{name} has costs of {num_layers} layers, but no cut into {num_stages} stages: "
            f"give layers per stage, such as {example}"
        )
    if len(layers_per_stage) != num_stages:
        raise ArgumentError(
            f"layers_per_stage has {len(layers_per_stage)} values, but the schedule has {num_stages} stages: give one for each"
        )
    # 2, 1, 3 -> 0:2, 2:3, 3:6
    return [slice(low, high) for low, high in pairwise(accumulate(layers_per_stage, initial=0))]
