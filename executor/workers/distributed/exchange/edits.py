"""What the caller changes in the model between two calls of his trainer, in place: in every process alike, or it is refused.

    process 0, trains stage 0    ── step ── caller: stage 0 and 1 changed ── step ──    his change of stage 0 is kept
    process 1, trains stage 1    ── step ── caller: nothing changed       ── step ──    that of stage 1 would be lost in silence

Counts of changes travel with what processes tell each other anyway. A loss is told, and heard, some steps after its own was given:
what is compared are the counts of the moment when that step was given.
"""

from __future__ import annotations

from collections.abc import Sequence

from schedir.errors import ArgumentError

Counts = tuple[int, ...]
"""By stage: changes in place so far."""


class Edits:
    """Counts of one process."""

    def __init__(self, num_stages: int) -> None:
        self.counts: Counts = (0,) * num_stages
        self._none = self.counts
        self._by_step: dict[int, Counts] = {}

    def add(self, changes: Sequence[int]) -> None:
        """Count changes of each stage."""
        self.counts = tuple(count + more for count, more in zip(self.counts, changes, strict=True))

    def begin_step(self, step: int, *, oldest: int) -> None:
        """Keep the counts of now for a step, which has come at most once since step 0; forget those before `oldest`."""
        if step == 0:
            self._by_step = {}
        self._by_step[step] = self.counts
        self._by_step.pop(oldest - 1, None)

    def of_step(self, step: int) -> Counts:
        """Return the counts of when a step was given; none where steps are not given one by one."""
        return self._by_step.get(step, self._none)


def check_alike(own: Counts, theirs: Counts, *, number: int, other: int) -> None:
    """Raise ArgumentError if two processes, `number` and `other`, have not changed each stage equally often."""
    stage = next((stage for stage, counts in enumerate(zip(own, theirs, strict=True)) if len(set(counts)) > 1), None)
    if stage is not None:
        raise ArgumentError(
            f"parameters, buffers or modes of stage {stage} were changed between steps {own[stage]} times by process {number} and "
            f"{theirs[stage]} times by process {other}: make the same change in every process"
        )
