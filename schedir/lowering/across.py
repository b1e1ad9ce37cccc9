"""What reaches over stages beside the chain: skip connections, and weights that several stages hold (ties)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.program import Program


def check_skips(skips: Sequence[tuple[int, int]], num_stages: int) -> tuple[tuple[int, int], ...]:
    """Return skip connections as sorted pairs (source, target); raise ArgumentError for one that leads over no stage."""
    for source, target in skips:
        if not (source >= 0 and source + 1 < target < num_stages):
            raise ArgumentError(
                f"skips ({source}, {target}) lead over no stage of 0..{num_stages - 1}: give a target 2 or more behind its source"
            )
    return tuple(sorted(set(skips)))


def check_ties(ties: Sequence[Sequence[int]], program: Program) -> tuple[tuple[int, ...], ...]:
    """Return ties, those with a stage in common as one; raise ArgumentError, and RefusedError for a program without a flush."""
    found = joined(ties, program.num_stages)
    if found and not program.weights.synchronous:
        raise RefusedError(
            f"{program.name} updates every stage at a moment of its own, but {named(found[0])} hold the same weights, which need "
            "the gradients of all of them at once: give each stage weights of its own, or use a schedule that flushes"
        )
    return found


def joined(ties: Sequence[Sequence[int]], num_stages: int) -> tuple[tuple[int, ...], ...]:
    """Return ties, sorted, those with a stage in common as one; raise ArgumentError for what names no stages."""
    groups: list[set[int]] = []
    for tie in ties:
        stages = _stages(tie, num_stages)
        groups = [group for group in groups if not group & stages] + [stages.union(*(group for group in groups if group & stages))]
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def _stages(tie: Any, num_stages: int) -> set[int]:
    given: list[Any] = list(tie) if isinstance(tie, Iterable) and not isinstance(tie, str) else []
    stages = {int(stage) for stage in given if not isinstance(stage, bool) and isinstance(stage, Integral) and int(stage) >= 0}
    if len(stages) < 2 or len(stages) < len(given) or max(stages) >= num_stages:
        raise ArgumentError(f"ties {tie!r} do not name stages of 0..{num_stages - 1}: give two or more for each tie, each once")
    return stages


def named(tie: Sequence[int]) -> str:
    """Return the stages of a tie in words: `stages 0 and 3`."""
    return f"stages {', '.join(map(str, tie[:-1]))} and {tie[-1]}"
