"""The times by which schedules without a closed pattern are laid out: those of unit slots, or those of a cost model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from schedir.costs.work_times import WorkTimes
from schedir.ir.action import Kind

Home = Callable[[int, int], int]
"""(stage, micro-batch) -> device."""


@dataclass(frozen=True, slots=True)
class SlotTimes:
    """How long work takes, one value per stage, in slots or in seconds."""

    forward: Sequence[float]
    backward: Sequence[float]
    """Of a whole backward, or of the input gradient alone where `weight_grad` stands apart."""
    gradient: Sequence[float]
    """From the start of a backward until its input gradient is there: less than `backward` where W follows at once."""
    weight_grad: Sequence[float] | None
    """Of a weight gradient that runs when there is nothing else to do; None: it is part of `backward`."""
    transfer: Sequence[float]
    """Latency of a hand-over from the stage to another device."""

    @classmethod
    def split(cls, num_stages: int, transfer: float = 0.0) -> SlotTimes:
        """Return F = I = W = 1, W apart."""
        ones = [1.0] * num_stages
        return cls(ones, ones, ones, ones, [transfer] * num_stages)

    def without_transfers(self) -> SlotTimes:
        """Return the times with hand-overs that take nothing."""
        return replace(self, transfer=[0.0] * len(self.transfer))

    @classmethod
    def of(cls, times: WorkTimes) -> SlotTimes:
        """Return the times that a cost model states, the mean over micro-batches of different sizes, W apart."""
        input_grad = times.typical(Kind.INPUT_GRAD)
        return cls(times.typical(Kind.FORWARD), input_grad, input_grad, times.typical(Kind.WEIGHT_GRAD), times.transfer.tolist())

    @classmethod
    def whole(cls, num_stages: int, *, forward: float = 1.0, backward: float = 2.0, gradient: float = 2.0) -> SlotTimes:
        """Return F = 1, B = 2 or others; a `gradient` below `backward` stands for I with its W right behind it."""
        return cls([forward] * num_stages, [backward] * num_stages, [gradient] * num_stages, None, [0.0] * num_stages)
