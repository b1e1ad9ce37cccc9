"""Lanes: what tasks occupy, one at a time.

A transfer and the compute of its two devices are three lanes, so that a device goes on while a message travels, and two messages
of one direction of a link follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache


class LaneKind(IntEnum):
    """What a task can occupy."""

    COMPUTE = 0
    LINK = 1
    REDUCE = 2


@dataclass(frozen=True, slots=True)
class Lane:
    """Something that does one task at a time, in order: a device's compute, one direction of a link, one stage's reductions."""

    kind: LaneKind
    device: int
    """The device; of a link the sender; of reductions the first device that hosts the stage."""
    peer: int = -1
    """The receiving device of a link, the stage of reductions (of tied weights the first, of all stages -1), else -1."""
    tie: tuple[int, ...] = ()
    """Of reductions over stages that hold the same weights: all of these stages; empty for those over replicas."""

    @property
    def over_replicas(self) -> bool:
        """It sums gradients over the replicas of a stage."""
        return self.kind is LaneKind.REDUCE and self.peer >= 0 and not self.tie

    @property
    def over_model(self) -> bool:
        """It is where all stages decide together on their updates."""
        return self.kind is LaneKind.REDUCE and self.peer < 0

    def __str__(self) -> str:
        if self.kind is LaneKind.LINK:
            return f"link {self.device}->{self.peer}"
        if self.kind is LaneKind.COMPUTE:
            return f"device {self.device}"
        if self.over_model:
            return "reduce all stages"
        return f"reduce tied stages {', '.join(map(str, self.tie))}" if self.tie else f"reduce stage {self.peer}"


@cache
def compute_lane(device: int) -> Lane:
    """Return the lane of a device's compute."""
    return Lane(LaneKind.COMPUTE, device)


@cache
def link_lane(sender: int, receiver: int) -> Lane:
    """Return the lane of one direction of a link."""
    return Lane(LaneKind.LINK, sender, receiver)
