"""What each process knows of a pass, put together: times on one clock, losses, and which weights were read."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from executor.model.data import MicroBatch
from executor.run.clock import UNRECORDED, Times
from executor.workers.distributed.clocks import AlignedClock, Flight, shifts
from executor.workers.team import Results
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class PassPart:
    """What one process knows of a pass."""

    start: Times
    """int64 (num_tasks), on the clock of process 0; UNRECORDED where another process knows it. Of a reduction: when this process
    gave its share."""
    end: Times
    """Of a transfer: when it arrived; of a reduction: when this process had the total."""
    losses: dict[int, Tensor]
    """By micro-batch."""
    reads: list[list[tuple[int, int]]]
    clock: AlignedClock
    data: int
    """A checksum of inputs and targets."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What all processes know of a pass."""

    start: Times
    end: Times
    losses: dict[int, Tensor]
    reads: list[list[list[tuple[int, int]]]]
    """By device."""
    clocks: list[AlignedClock]
    """By process."""
    delays: list[int] | None
    """By process: nanoseconds by which its times were late, so that no message arrives before it was sent; None: none do it."""


def own_part(number: int, results: Results, clock: AlignedClock) -> PassPart:
    """Return what this process knows."""
    start, end = (corrected(times, clock) for times in results.recorder.times())
    graph, feed = results.graph, results.feed
    losses = {j: loss for j, loss in enumerate(feed.losses) if loss is not None}
    return PassPart(start, end, losses, feed.log.part(graph.lane_range(number)), clock, checksum(feed.micro_batches))


def take_over(whole: Whole, results: Results) -> None:
    """Let this process's feed and recorder hold what all processes know."""
    graph, feed = results.graph, results.feed
    results.recorder.replace(whole.start, whole.end)
    for micro_batch, loss in whole.losses.items():
        feed.losses[micro_batch] = loss
    for device, reads in enumerate(whole.reads):
        feed.log.take_part(graph.lane_range(device), reads)


def put_together(graph: TaskGraph, parts: Sequence[PassPart]) -> Whole:
    """Make one of all parts; raise ArgumentError if the processes have read other data."""
    for number, part in enumerate(parts):
        if part.data != parts[0].data:
            raise ArgumentError(
                f"process {number} has trained on other data than process 0: let every process read the same mini-batches in the "
                "same order (shuffle with a seed)"
            )
    start, end, delays = merge([(part.start, part.end) for part in parts], graph)
    return Whole(
        start=start,
        end=end,
        losses={j: loss for part in parts for j, loss in part.losses.items()},
        reads=[part.reads for part in parts],
        clocks=[part.clock for part in parts],
        delays=delays,
    )


def merge(parts: Sequence[tuple[Times, Times]], graph: TaskGraph) -> tuple[Times, Times, list[int] | None]:
    """Return the start and end of every task that any process knows, and the processes' delays (see `Whole`)."""
    delays = shifts(_flights(graph, parts), len(parts))
    starts, ends = (
        [_delayed(times, delay) for times, delay in zip(side, delays or [0] * len(parts), strict=True)]
        for side in zip(*parts, strict=True)
    )
    start, end = np.max(starts, axis=0), _first(ends)
    return start, np.where((start != UNRECORDED) & (end != UNRECORDED), np.maximum(start, end), end), delays


def _flights(graph: TaskGraph, parts: Sequence[tuple[Times, Times]]) -> Iterable[Flight]:
    """Yield all transfers: one process knows when it was sent, another when it arrived."""
    for task in np.flatnonzero(graph.kind == Kind.TRANSFER).tolist():
        lane = graph.lanes[int(np.searchsorted(graph.lane_start, task, side="right")) - 1]
        sent, received = int(parts[lane.device][0][task]), int(parts[lane.peer][1][task])
        if UNRECORDED not in (sent, received):
            yield Flight(lane.device, lane.peer, sent, received)


def corrected(times: Times, clock: AlignedClock) -> Times:
    """Return times on the clock of process 0."""
    return np.where(times == UNRECORDED, times, clock.corrected(times))


def _delayed(times: Times, delay: int) -> Times:
    return np.where(times == UNRECORDED, times, times + delay)


def _first(times: Sequence[Times]) -> Times:
    """Return the earliest time that anybody knows."""
    never = np.iinfo(np.int64).max
    earliest = np.min([np.where(own == UNRECORDED, never, own) for own in times], axis=0)
    return np.where(earliest == never, UNRECORDED, earliest)


def checksum(micro_batches: Sequence[MicroBatch]) -> int:
    """Return a checksum of all inputs and targets."""
    found = 0
    for part in micro_batches:
        targets = part.target if isinstance(part.target, tuple) else (part.target,)
        for tensor in (*part.inputs.tensors, *targets):
            found = tensor_checksum(tensor, found)
    return found


def tensor_checksum(tensor: Tensor, before: int = 0) -> int:
    """Return a checksum of a tensor's values and type."""
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(content.numpy().data, zlib.crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), before))
