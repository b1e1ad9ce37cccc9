"""What the processes that train a graph together tell each other behind a pass: losses, and which weights were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from executor.run.checksums import checksum
from executor.stage.feed import Feed
from executor.workers.team import Team
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class PassPart:
    """What one process knows of a pass."""

    losses: dict[int, Tensor]
    """By micro-batch."""
    reads: dict[int, list[list[tuple[int, int]]]]
    """By device."""
    data: int
    """A checksum of inputs and targets."""


def share_results(graph: TaskGraph, feed: Feed, team: Team, *, devices: Sequence[int]) -> None:
    """Let this process's feed hold what all processes know; `devices` are its own.

    Raises ArgumentError if the processes have read other data.
    """
    losses = {j: loss for j, loss in enumerate(feed.losses) if loss is not None}
    reads = {device: feed.log.part(graph.lane_range(device)) for device in devices}
    parts = team.of_all("results of a pass", PassPart(losses, reads, checksum(feed.micro_batches)))
    for number, part in enumerate(parts):
        if part.data != parts[0].data:
            raise ArgumentError(
                f"process {number} has trained on other data than process 0: let every process read the same mini-batches in the "
                "same order (shuffle with a seed)"
            )
        for micro_batch, loss in part.losses.items():
            feed.losses[micro_batch] = loss
        for device, own in part.reads.items():
            feed.log.take_part(graph.lane_range(device), own)
