"""What reaches over stages beside the chain: skip connections, weights that several stages hold (ties), and common updates.

The last two have one consequence in common: updates wait for the gradients of other stages (`Together`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect
from schedir.ir.program import Program


@dataclass(frozen=True, slots=True)
class Together:
    """Which updates wait for the gradients of other stages than their own."""

    ties: tuple[tuple[int, ...], ...] = ()
    """Stages that hold the same weights."""
    common: bool = False
    """All stages decide together."""

    def stages(self, num_stages: int) -> frozenset[int]:
        """Return the stages whose updates wait so."""
        return frozenset(range(num_stages) if self.common else (stage for tie in self.ties for stage in tie))

    def groups(self, num_stages: int) -> list[tuple[tuple[int, ...], str]]:
        """Return stages that wait for each other, with the reason in words."""
        found = [(tie, f"stages {', '.join(map(str, tie))} hold the same weights") for tie in self.ties]
        return [*found, (tuple(range(num_stages)), "all stages decide together on their updates")] if self.common else found


ALONE = Together()
"""Every stage updates by its own gradients."""


def check_skips(skips: Sequence[tuple[int, int]], num_stages: int) -> tuple[tuple[int, int], ...]:
    """Return skip connections as sorted pairs (source, target); raise ArgumentError for one that leads over no stage."""
    for source, target in skips:
        if not (source >= 0 and source + 1 < target < num_stages):
            raise ArgumentError(
                f"skips ({source}, {target}) lead over no stage of 0..{num_stages - 1}: give a target 2 or more behind its source"
            )
    # each once, and in one order: graphs of the same skips are compiled alike, however they were given
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
        # (0, 3) and (3, 5) hold one and the same weights: all three stages are one tie
        stages = _stages(tie, num_stages)
        groups = [group for group in groups if not group & stages] + [stages.union(*(group for group in groups if group & stages))]
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def check_common_update(common: bool, program: Program) -> bool:
    """Return whether all stages decide together on their updates; raise RefusedError for a program without a flush."""
    expect(common, bool, "common_update", remedy="give True or False")
    if common and not program.weights.synchronous:
        raise RefusedError(
            f"{program.name} never has the gradients of all stages at one moment, so its stages cannot decide together on an "
            'update: let each decide on its own (clip=Clip(…, per="stage")), or use a schedule that flushes'
        )
    return common


def _stages(tie: Any, num_stages: int) -> set[int]:
    given: list[Any] = list(tie) if isinstance(tie, Iterable) and not isinstance(tie, str) else []
    stages = {int(stage) for stage in given if not isinstance(stage, bool) and isinstance(stage, Integral) and int(stage) >= 0}
    if len(stages) < 2 or len(stages) < len(given) or max(stages) >= num_stages:
        raise ArgumentError(f"ties {tie!r} do not name stages of 0..{num_stages - 1}: give two or more for each tie, each once")
    return stages


def named(tie: Sequence[int]) -> str:
    """Return the stages of a tie in words: `stages 0 and 3`."""
    return f"stages {', '.join(map(str, tie[:-1]))} and {tie[-1]}"
