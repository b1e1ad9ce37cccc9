"""Building blocks (Qi et al., Pipeline Parallelism with Controllable Memory, 2024): one micro-batch's way, repeated.

A block says in which slot a micro-batch's F and I stand on every stage, and the next micro-batch follows `period` slots
later. How long a stage's activations live divided by the period is how many of them a device holds, so the period is what
controls memory: the shortest is one slot for every piece of work on a device, and a longer one fits into less memory.

    F down 2, up 2, I up 2, down 2 slots a stage; turns 1, 2, 3 slots; p = 2, two stages per device in a V, period 6

    slot       0   1   2   3   4   5   6   7   8   9   10  11  12  13  14  15  16  17
    device 0   F0  .   .   .   .   3F0 F1  3I0 .   .   .   3F1 .   3I1 0I0 .   .   .
    device 1   .   .   1F0 2F0 .   .   .   .   1F1 2I0 2F1 .   1I0 ...

Two pieces may fall on one slot: the slots only say what goes first, and `listing` runs it when it can be run. W is not in the
block, since it may stand anywhere behind its I.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedir.schedules.layout.listing import Priority


@dataclass(frozen=True, slots=True)
class Block:
    """Slots of micro-batch 0, by stage."""

    forward: tuple[int, ...]
    input_grad: tuple[int, ...]
    period: int
    """Slots between two micro-batches."""

    @property
    def priority(self) -> Priority:
        """Return its slots as what runs first; of pieces that fall on one slot the lower stage."""
        return Priority(self.forward, self.input_grad, self.period)

    def live(self, hosted: Sequence[Sequence[int]]) -> int:
        """Return the most (stage, micro-batch) pairs alive on a device, W right behind I; `hosted`: stages by device."""
        return max(self._live(stages) for stages in hosted)

    def _live(self, stages: Sequence[int]) -> int:
        # In slot t those micro-batches of a stage live whose F is at or before t and whose I is at or behind it.
        lives = [(self.forward[stage], self.input_grad[stage] + 1) for stage in stages]
        starts = {first % self.period for first, _ in lives}
        return max(
            sum((end - 1 - slot) // self.period - (first - 1 - slot) // self.period for first, end in lives) for slot in starts
        )

    def within(self, limit: int, hosted: Sequence[Sequence[int]]) -> Block:
        """Return the block with the shortest period that keeps at most `limit` pairs alive, which is at least a device's stages."""
        block = self
        # it ends: with a period as long as the block, one micro-batch is alive per stage
        while block.live(hosted) > limit:
            block = replace(block, period=block.period + 1)
        return block


def straight(num_devices: int, *, legs: tuple[int, int], turn: int) -> Block:
    """Return the block of one stage per device: slots per stage of F down and I up, and at the loss."""
    down, up = legs
    forward = tuple(down * k for k in range(num_devices))
    backward = tuple(forward[-1] + turn + up * k for k in range(num_devices))
    return Block(forward, backward[::-1], period=3)


def vee(num_devices: int, *, legs: tuple[int, int, int, int], turns: tuple[int, int, int]) -> Block:
    """Return the block of two stages per device in a V: slots per stage of F down, F up, I down, I up, and at the three turns."""
    down, up, back_down, back_up = legs
    turn, loss, back_turn = turns
    p = num_devices
    forward = [down * k for k in range(p)]
    forward += [forward[-1] + turn + up * k for k in range(p)]
    backward = [forward[-1] + loss + back_down * k for k in range(p)]
    backward += [backward[-1] + back_turn + back_up * k for k in range(p)]
    return Block(tuple(forward), tuple(backward[::-1]), period=6)
