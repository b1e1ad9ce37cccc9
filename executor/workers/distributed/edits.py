"""What the caller changes in the model between two calls of his trainer, in place: in every process alike, or it is refused.

    process 0, trains stage 0    ── step ── caller: stage 0 and 1 changed ── step ──    his change of stage 0 is kept
    process 1, trains stage 1    ── step ── caller: nothing changed       ── step ──    that of stage 1 would be lost in silence

Torch counts changes in place of every tensor. Here they are counted while the caller is outside of the trainer only, when nothing
but him changes anything, and the counts travel with what processes tell each other anyway. Changes through `.data` are not counted
by torch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import nn

from schedir.errors import ArgumentError

Counts = tuple[int, ...]
"""By stage: changes in place so far."""


class Edits:
    """Counts them in one process."""

    def __init__(self, stages: Sequence[nn.Module], own: Collection[int]) -> None:
        """`own`: the stages that this process trains, which training changes too."""
        self._parameters = [tuple(stage.parameters()) for stage in stages]
        self._own = frozenset(own)
        self._left_at: list[int | None] = [None] * len(self._parameters)
        """By stage: how often it had been changed when the caller left the trainer; None if training may have gone on since."""
        self.counts: Counts = (0,) * len(self._parameters)

    def leave(self, *, idle: bool) -> None:
        """Hear that the caller leaves the trainer; `idle`: nothing is on its way."""
        self._left_at = [self._changes(stage) if idle or stage not in self._own else None for stage in range(len(self.counts))]

    def enter(self) -> None:
        """Hear that the caller is back, and count."""
        before = zip(self.counts, self._left_at, strict=True)
        self.counts = tuple(
            count if left_at is None else count + self._changes(stage) - left_at for stage, (count, left_at) in enumerate(before)
        )

    def _changes(self, stage: int) -> int:
        return sum(parameter._version for parameter in self._parameters[stage])


def check_alike(own: Counts, theirs: Counts, *, number: int, other: int) -> None:
    """Raise ArgumentError if two processes, `number` and `other`, have not changed each stage equally often."""
    stage = next((stage for stage, counts in enumerate(zip(own, theirs, strict=True)) if len(set(counts)) > 1), None)
    if stage is not None:
        raise ArgumentError(
            f"parameters of stage {stage} were changed between steps {own[stage]} times by process {number} and {theirs[stage]} "
            f"times by process {other}, of which one at most trains them: make the same change in every process"
        )
