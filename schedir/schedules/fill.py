"""Put weight gradients into the gaps of an order of forwards and input gradients.

Devices run their F and I in the given order, as early as they can. Before a device waits long enough, or would hold more
activations than it may, it runs the oldest W that is put off; behind the last F and I it runs the rest. This is how the
zero-bubble papers fill the bubble; with the times of real work the gaps are those of the real pipeline.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from schedir.ir.action import Kind
from schedir.schedules.orders import Orders, Work
from schedir.schedules.times import SlotTimes


def fill_weight_grads(orders: Sequence[Sequence[Work]], times: SlotTimes, *, limit: int, least_wait: float = 1.0) -> Orders | None:
    """Return the orders with every W in place, or None if they stick or need more than `limit` live pairs on a device.

    `orders` has the F and I of every device, W is added; a W in it is ignored. A wait is worth a W if it lasts `least_wait`
    of the W's own time; 0: if there is any. Linear in the number of actions, times the logarithm of the devices.
    """
    kept = [[work for work in order if work[0] is not Kind.WEIGHT_GRAD] for order in orders]
    return _Filler(kept, times, limit=limit, least_wait=least_wait).run()


class _Filler:
    """The state of one simulated run."""

    def __init__(self, orders: Orders, times: SlotTimes, *, limit: int, least_wait: float) -> None:
        self._orders, self._times, self._limit, self._least_wait = orders, times, limit, least_wait
        self._home = {stage: device for device, order in enumerate(orders) for _, stage, _ in order}
        self._next = [0] * len(orders)
        self._free = [0.0] * len(orders)
        self._live = [0] * len(orders)
        self._late: list[deque[Work]] = [deque() for _ in orders]
        self._made: Orders = [[] for _ in orders]
        self._end: dict[Work, float] = {}
        self._waiting: dict[Work, int] = {}
        self._ready: list[tuple[float, int]] = []

    def run(self) -> Orders | None:
        """Return the filled orders, or None."""
        for device in range(len(self._orders)):
            self._announce(device)
        while self._ready:
            start, device = heapq.heappop(self._ready)
            work = self._orders[device][self._next[device]]
            start = self._fill_gap(device, work, start)
            if work[0] is Kind.FORWARD and self._live[device] >= self._limit:
                return None
            self._do(device, work, start)
            self._next[device] += 1
            self._announce(device)
        if any(at < len(order) for at, order in zip(self._next, self._orders, strict=True)):
            return None
        for device, late in enumerate(self._late):
            while late:
                self._weight_grad(device)
        return self._made

    def _announce(self, device: int) -> None:
        """Queue a device's next work with its earliest start, or note what it waits for."""
        if self._next[device] == len(self._orders[device]):
            return
        need = self._need(self._orders[device][self._next[device]])
        if need is not None and need not in self._end:
            self._waiting[need] = device
            return
        start = self._free[device]
        if need is not None:
            remote = self._home[need[1]] != device
            start = max(start, self._end[need] + (self._times.transfer[need[1]] if remote else 0.0))
        heapq.heappush(self._ready, (start, device))

    def _need(self, work: Work) -> Work | None:
        kind, stage, j = work
        if kind is Kind.FORWARD:
            return (kind, stage - 1, j) if stage else None
        # at the last stage the loss is right behind its own F
        return (kind, stage + 1, j) if stage + 1 in self._home else (Kind.FORWARD, stage, j)

    def _fill_gap(self, device: int, work: Work, start: float) -> float:
        """Run W while they are worth it before `start`, and where memory needs it; return when the work can start then."""
        late = self._late[device]
        while late and (self._worth(device, start) or (work[0] is Kind.FORWARD and self._live[device] >= self._limit)):
            self._weight_grad(device)
        return max(start, self._free[device])

    def _worth(self, device: int, start: float) -> bool:
        assert self._times.weight_grad is not None
        wait = start - self._free[device]
        return wait > 0 and wait >= self._least_wait * self._times.weight_grad[self._late[device][0][1]]

    def _weight_grad(self, device: int) -> None:
        assert self._times.weight_grad is not None
        _, stage, j = self._late[device].popleft()
        self._made[device].append((Kind.WEIGHT_GRAD, stage, j))
        self._free[device] += self._times.weight_grad[stage]
        self._live[device] -= 1

    def _do(self, device: int, work: Work, start: float) -> None:
        if work[0] is Kind.FORWARD:
            self._live[device] += 1
            seconds = self._times.forward
        else:
            self._late[device].append(work)
            seconds = self._times.backward
        self._made[device].append(work)
        self._free[device] = self._end[work] = start + seconds[work[1]]
        if work in self._waiting:
            self._announce(self._waiting.pop(work))
