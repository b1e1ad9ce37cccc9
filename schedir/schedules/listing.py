"""A list scheduler: every device, whenever it is free, runs the lowest-ranked work that is ready and that its memory admits.

It makes orders where no closed pattern is known, and squeezes the gaps out of patterns that leave some. Weight gradients
that stand apart run when a device has nothing else to do. Linear in the work, times the logarithm of what is ready at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from schedir.ir.action import Kind
from schedir.schedules.orders import Orders, Work
from schedir.schedules.times import Home, SlotTimes

Rank = Callable[[Kind, int, int], Any]
"""(kind, stage, micro-batch) -> anything that sorts; of F and of B or I."""


@dataclass(frozen=True, slots=True)
class PlacedPipeline:
    """What is to be put in order: one mini-batch on some devices."""

    num_devices: int
    num_stages: int
    num_micro_batches: int
    home: Home
    """Which device runs a stage's work on a micro-batch."""


@dataclass(frozen=True, slots=True)
class Listed:
    """Orders, and when the last work ends by the times they were made with."""

    orders: Orders
    end: float


def forwards_first(kind: Kind, stage: int, micro_batch: int) -> tuple[int, int, int]:
    """Rank forwards before backwards; of forwards the latest stage, of backwards the earliest, which frees memory soonest."""
    return (0, -stage, micro_batch) if kind is Kind.FORWARD else (1, stage, micro_batch)


def backwards_first(kind: Kind, stage: int, micro_batch: int) -> tuple[int, int, int]:
    """Rank backwards before forwards, else as `forwards_first`."""
    return (1, -stage, micro_batch) if kind is Kind.FORWARD else (0, stage, micro_batch)


def list_orders(pipeline: PlacedPipeline, rank: Rank, times: SlotTimes, *, limit: int, reserve: bool = False) -> Listed | None:
    """Return the orders of all devices, or None if `limit` makes them stick.

    `limit` is the most (stage, micro-batch) pairs alive on a device. With `reserve` a forward may run before forwards of
    lower rank only if there is room for those too; so whatever the times are, it cannot stick where the order by rank
    itself keeps the limit.
    """
    return _Lister(pipeline, rank, times, limit=limit, reserve=reserve).run()


@dataclass(slots=True)
class _Device:
    """What a device knows."""

    free: float = 0.0
    """When it is done with what it runs."""
    live: int = 0
    """(stage, micro-batch) pairs it holds."""
    order: list[Work] = field(default_factory=list)
    forwards: list[tuple[Any, Work]] = field(default_factory=list)
    """Heap of the forwards that are ready, by rank."""
    backwards: list[tuple[Any, Work]] = field(default_factory=list)
    """Heap of the backwards that are ready, by rank."""
    late: deque[Work] = field(default_factory=deque)
    """Weight gradients that are put off."""
    turn: dict[tuple[int, int], int] = field(default_factory=dict)
    """(stage, micro-batch) -> place of its forward among the device's forwards by rank; empty without reservation."""
    done: set[int] = field(default_factory=set)
    """Places of forwards that ran before others of lower rank."""
    first: int = 0
    """Lowest place of a forward that has not run."""

    def admits(self, work: Work, limit: int) -> bool:
        """Return True if there is room for a forward, and for all that it would overtake."""
        overtaken = self.turn[work[1:]] - self.first if self.turn else 0
        return self.live + overtaken < limit

    def run_forward(self, work: Work) -> None:
        """Note that a forward runs."""
        self.live += 1
        if self.turn:
            self.done.add(self.turn[work[1:]])
            while self.first in self.done:
                self.done.remove(self.first)
                self.first += 1


class _Lister:
    """The state of one simulated run; its heap holds arrivals (work becomes ready) and wake-ups (a device is free)."""

    def __init__(self, pipeline: PlacedPipeline, rank: Rank, times: SlotTimes, *, limit: int, reserve: bool) -> None:
        self._pipeline, self._rank, self._times, self._limit = pipeline, rank, times, limit
        self._devices = [_Device() for _ in range(pipeline.num_devices)]
        self._tick = count()
        self._heap: list[tuple[float, bool, int, int, Work | None]] = []
        if reserve:
            self._reserve()

    def _reserve(self) -> None:
        """Give every forward its place among those of its device, by rank."""
        pipeline = self._pipeline
        ranked: list[list[tuple[Any, int, int]]] = [[] for _ in self._devices]
        for stage in range(pipeline.num_stages):
            for j in range(pipeline.num_micro_batches):
                ranked[pipeline.home(stage, j)].append((self._rank(Kind.FORWARD, stage, j), stage, j))
        for device, forwards in zip(self._devices, ranked, strict=True):
            device.turn = {(stage, j): place for place, (_, stage, j) in enumerate(sorted(forwards))}

    def run(self) -> Listed | None:
        """Return the orders, or None if they stick."""
        for j in range(self._pipeline.num_micro_batches):
            self._arrive(0.0, (Kind.FORWARD, 0, j))
        # at one time arrivals (False) come before wake-ups (True), so that a device chooses among all that is ready by then; the
        # tick decides the rest, and work itself is never compared
        while self._heap:
            time, is_wake_up, _, index, work = heapq.heappop(self._heap)
            device = self._devices[index]
            if not is_wake_up:
                assert work is not None
                heap = device.forwards if work[0] is Kind.FORWARD else device.backwards
                heapq.heappush(heap, (self._rank(*work), work))
                self._wake(max(time, device.free), index)
            elif device.free <= time:
                self._run_best(index, time)
        orders = [device.order for device in self._devices]
        each = 3 if self._times.weight_grad else 2
        done = sum(map(len, orders)) == each * self._pipeline.num_stages * self._pipeline.num_micro_batches
        return Listed(orders, max(device.free for device in self._devices)) if done else None

    def _arrive(self, time: float, work: Work) -> None:
        device = self._pipeline.home(work[1], work[2])
        heapq.heappush(self._heap, (time, False, next(self._tick), device, work))

    def _wake(self, time: float, device: int) -> None:
        heapq.heappush(self._heap, (time, True, next(self._tick), device, None))

    def _run_best(self, index: int, time: float) -> None:
        """Start what ranks lowest; forwards wait for room, weight gradients for want of anything else."""
        device = self._devices[index]
        forwards, backwards = device.forwards, device.backwards
        may_forward = bool(forwards) and device.admits(forwards[0][1], self._limit)
        if backwards and not (may_forward and forwards[0][0] < backwards[0][0]):
            self._backward(index, time, heapq.heappop(backwards)[1])
        elif may_forward:
            self._forward(index, time, heapq.heappop(forwards)[1])
        elif device.late:
            _, stage, j = device.late.popleft()
            assert self._times.weight_grad is not None
            device.live -= 1
            self._occupy(index, (Kind.WEIGHT_GRAD, stage, j), time + self._times.weight_grad[stage])

    def _forward(self, index: int, time: float, work: Work) -> None:
        _, stage, j = work
        end = time + self._times.forward[stage]
        self._devices[index].run_forward(work)
        if stage == self._pipeline.num_stages - 1:
            self._arrive(end, (self._backward_kind, stage, j))
        else:
            self._hand_over(index, end, (Kind.FORWARD, stage + 1, j), sender=stage)
        self._occupy(index, work, end)

    def _backward(self, index: int, time: float, work: Work) -> None:
        _, stage, j = work
        if self._times.weight_grad is None:
            self._devices[index].live -= 1
        else:
            self._devices[index].late.append(work)
        if stage:
            self._hand_over(index, time + self._times.gradient[stage], (work[0], stage - 1, j), sender=stage)
        self._occupy(index, work, time + self._times.backward[stage])

    @property
    def _backward_kind(self) -> Kind:
        return Kind.BACKWARD if self._times.weight_grad is None else Kind.INPUT_GRAD

    def _hand_over(self, index: int, time: float, work: Work, *, sender: int) -> None:
        remote = self._pipeline.home(work[1], work[2]) != index
        self._arrive(time + self._times.transfer[sender] if remote else time, work)

    def _occupy(self, index: int, work: Work, end: float) -> None:
        self._devices[index].order.append(work)
        self._devices[index].free = end
        self._wake(end, index)
