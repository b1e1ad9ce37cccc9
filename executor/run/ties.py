"""Join the copies of stages that hold the same weights: who lies in whose memory, who updates it, who takes over from whom.

on one device     the lowest stage there updates the weights, the others compute with the very same memory
on several        one copy per device; before the training each gets what the owner's optimizer knows of the weights
"""

from __future__ import annotations

from collections.abc import Sequence

from executor.model.pipeline import Pipeline
from executor.model.stage_copy import StageCopy
from executor.model.ties import Tie, check_graph, tie_over
from executor.stage.tied import TiedPart
from schedir.ir.graph import TaskGraph


class TiedCopies:
    """The ties of a pipeline under one graph."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, devices: Sequence[int]) -> None:
        """`devices` are those of this process. Raise RefusedError if the graph does not know the pipeline's ties."""
        check_graph(graph, pipeline.shared)
        self._pipeline, self._devices = pipeline, devices
        self._hosts = graph.stage_devices()
        self._ties = {stage: tie_over(tie, pipeline.shared) for tie in graph.options.ties for stage in tie}
        self._copies: dict[tuple[int, int], StageCopy] = {}
        """By (stage, device)."""

    def join(self, copy: StageCopy, stage: int, device: int) -> None:
        """Get a copy of a stage, which has its private parameters, ready for a device; lower stages there were joined before."""
        if stage not in self._ties:
            return
        tie, part = self._ties[stage], self.part(stage, device)
        assert part is not None
        self._copies[stage, device] = copy
        for parameter, number in enumerate(part.numbers):
            if number < 0:
                continue
            if number in part.updated_below:
                keeper = min(self._holders_on(tie, parameter, device))
                keeps = self._copies[keeper, device].parameters[tie.numbers_of(keeper)[parameter]]
                copy.share_memory(number, keeps)
                continue
            owner = tie.holders(parameter)[0]
            owners = self._pipeline.copy(owner, 0)
            if owners is not copy:
                # where the owner trains in another process nobody else writes there: what the caller has of it stays the newest
                apart = not self._owner_is_elsewhere(tie, part, number)
                copy.follow_owner(number, owners, tie.numbers_of(owner)[parameter], apart=apart)
        copy.write_back(frozenset(number for number in part.owned_below if self._owner_is_elsewhere(tie, part, number)))

    def part(self, stage: int, device: int) -> TiedPart | None:
        """Return a stage's part in its tie; None if it has none."""
        if stage not in self._ties:
            return None
        tie = self._ties[stage]
        pairs = [(parameter, number) for parameter, number in enumerate(tie.numbers_of(stage)) if number >= 0]
        return TiedPart(
            numbers=tie.numbers_of(stage),
            owned_below=frozenset(number for parameter, number in pairs if tie.holders(parameter)[0] < stage),
            updated_below=frozenset(number for parameter, number in pairs if min(self._holders_on(tie, parameter, device)) < stage),
        )

    def _holders_on(self, tie: Tie, parameter: int, device: int) -> list[int]:
        return [stage for stage in tie.holders(parameter) if device in self._hosts[stage]]

    def _owner_is_elsewhere(self, tie: Tie, part: TiedPart, number: int) -> bool:
        owner = tie.holders(part.numbers.index(number))[0]
        return self._hosts[owner][0] not in self._devices
