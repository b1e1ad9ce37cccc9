"""A list scheduler: every device, whenever it is free, runs the first by priority of what is ready and its memory admits.

It makes orders where no closed pattern is known, and squeezes the gaps out of patterns that leave some. Weight gradients
that stand apart run when a device has nothing else to do. Every piece of work is looked at a fixed number of times: when it
becomes ready, when it is chosen and when it ends; each costs the logarithm of what is ready on its device, or under way.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from schedir.schedules.layout.orders import Ways
from schedir.schedules.layout.times import SlotTimes


@dataclass(frozen=True, slots=True)
class Priority:
    """What runs first, the lowest number: that of its stage, and `step` more for every micro-batch before it.

    Of equal numbers the lower stage is first.
    """

    forward: tuple[int, ...]
    """By stage."""
    backward: tuple[int, ...]
    """By stage; of the input gradient where W stands apart."""
    step: int = 0


def forwards_first(num_stages: int) -> Priority:
    """Let forwards run before backwards; of forwards the latest stage, of backwards the earliest, which frees memory soonest."""
    stages = range(num_stages)
    return Priority(tuple(-stage for stage in stages), tuple(num_stages + stage for stage in stages))


def backwards_first(num_stages: int) -> Priority:
    """Let backwards run before forwards, else as `forwards_first`."""
    stages = range(num_stages)
    return Priority(tuple(2 * num_stages - stage for stage in stages), tuple(stages))


class Listed(NamedTuple):
    """Orders, and when the last work ends by the times they were made with."""

    orders: list[list[int]]
    end: float


def list_orders(ways: Ways, priority: Priority, times: SlotTimes, *, limit: int, reserve: bool = False) -> Listed | None:
    """Return the orders of all devices, or None if `limit` makes them stick.

    `limit` is the most (stage, micro-batch) pairs alive on a device. With `reserve` a forward may run before forwards of
    lower priority number only if there is room for those too; so whatever the times are, it cannot stick where the order by
    priority itself keeps the limit.
    """
    return _Lister(ways, priority, times, limit=limit, reserve=reserve).run()


class _Device:
    """What a device knows."""

    __slots__ = ("backwards", "done", "first", "forwards", "free", "late", "live", "order", "wake_up")

    def __init__(self, wake_up: int) -> None:
        self.wake_up = wake_up
        """The code that says that it is free again."""
        self.free = 0.0
        """When it is done with what it runs."""
        self.live = 0
        """(stage, micro-batch) pairs that it holds."""
        self.order: list[int] = []
        self.forwards: list[int] = []
        """Heap of the forwards that are ready: number x places + place."""
        self.backwards: list[int] = []
        """The same of the backwards."""
        self.late: deque[int] = deque()
        """Places whose weight gradients are put off."""
        self.done: set[int] = set()
        """Turns of forwards that ran before others of lower number."""
        self.first = 0
        """Lowest turn of a forward that has not run."""


class _Lister:
    """The state of one simulated run; codes below 2 x places are work that becomes ready, those from there on devices."""

    def __init__(self, ways: Ways, priority: Priority, times: SlotTimes, *, limit: int, reserve: bool) -> None:
        stages, homes = ways.num_stages, ways.homes
        self._counts, self._limit, self._places, self._step = ways.counts, limit, len(homes), priority.step
        self._devices = [_Device(2 * len(homes) + device) for device in range(max(homes) + 1)]
        self._home = [self._devices[home] for home in homes]
        self._homes = homes
        # by side and place, as codes: what the first micro-batch's work has for a number, and how many have become ready
        self._base = [numbers[place % stages] for numbers in (priority.forward, priority.backward) for place in range(len(homes))]
        self._arrived = [0] * (2 * self._places)
        self._first = {place for place in range(self._places) if place % stages == 0}
        self._last = {place for place in range(self._places) if place % stages == stages - 1}
        of_stage = (times.forward, times.backward, times.gradient, times.weight_grad or times.backward)
        self._forward, self._backward, self._gradient, self._weight_grad = (
            [float(column[place % stages]) for place in range(self._places)] for column in of_stage
        )
        self._apart = times.weight_grad is not None
        # latency of what a place sends, forward and backward: none where the device itself goes on
        sent = [times.transfer[place % stages] for place in range(self._places)]
        self._down = [0.0 if home == after else late for home, after, late in zip(homes, (*homes[1:], -1), sent, strict=True)]
        self._up = [0.0 if home == before else late for home, before, late in zip(homes, (-1, *homes[:-1]), sent, strict=True)]
        self._times: list[float] = []
        self._pending: dict[float, list[int]] = {}
        self._turns = self._turns_by_place() if reserve else None

    def _turns_by_place(self) -> list[list[int]]:
        """Return by place the turns of its forwards among those of its device, by priority, the last first."""
        turns: list[list[int]] = [[] for _ in self._counts]
        hosted: dict[int, list[int]] = {}
        for place, home in enumerate(self._homes):
            hosted.setdefault(home, []).append(place)
        for places in hosted.values():
            entries = [
                (self._base[place] + self._step * j) * self._places + place for place in places for j in range(self._counts[place])
            ]
            # the last first, so that pop() gives the turn of the next forward
            for turn, entry in reversed(list(enumerate(sorted(entries)))):
                turns[entry % self._places].append(turn)
        return turns

    def run(self) -> Listed | None:
        """Return the orders, or None if they stick."""
        for place in self._first:
            for _ in range(self._counts[place]):
                self._at(0.0, place)
        pending, places, step = self._pending, self._places, self._step
        while self._times:
            now = heappop(self._times)
            awake = []
            # all that is ready at one time is noted before any device chooses among it
            for code in pending.pop(now):
                if code >= 2 * places:
                    awake.append(self._devices[code - 2 * places])
                    continue
                turn = self._arrived[code]
                self._arrived[code] = turn + 1
                is_forward = code < places
                place = code if is_forward else code - places
                device = self._home[place]
                heappush(device.forwards if is_forward else device.backwards, (self._base[code] + step * turn) * places + place)
                awake.append(device)
            for device in awake:
                if device.free <= now:
                    self._run_best(device, now)
        orders = [device.order for device in self._devices]
        done = sum(map(len, orders)) == (3 if self._apart else 2) * sum(self._counts)
        return Listed(orders, max(device.free for device in self._devices)) if done else None

    def _at(self, time: float, code: int) -> None:
        """Note what happens at a time."""
        # a bucket for each time, and a heap of times alone: on slots many things happen at once
        pending = self._pending.get(time)
        if pending is None:
            self._pending[time] = [code]
            heappush(self._times, time)
        else:
            pending.append(code)

    def _run_best(self, device: _Device, now: float) -> None:
        """Start what is first by priority; forwards wait for room, weight gradients for want of anything else."""
        forwards, backwards = device.forwards, device.backwards
        may_forward = bool(forwards) and self._admits(device, forwards[0] % self._places)
        # a lower entry is an earlier one, whichever side it is of
        if backwards and not (may_forward and forwards[0] < backwards[0]):
            end = self._run_backward(device, heappop(backwards) % self._places, now)
        elif may_forward:
            end = self._run_forward(device, heappop(forwards) % self._places, now)
        elif device.late:
            place = device.late.popleft()
            device.live -= 1
            device.order.append(2 * self._places + place)
            end = now + self._weight_grad[place]
        else:
            return
        device.free = end
        self._at(end, device.wake_up)

    def _admits(self, device: _Device, place: int) -> bool:
        """Return True if there is room for the next forward of a place, and for all that it would overtake."""
        if self._turns is None:
            return device.live < self._limit
        # with `reserve` every earlier forward that has not run has its place kept: turn - first counts those
        return device.live + self._turns[place][-1] - device.first < self._limit

    def _run_forward(self, device: _Device, place: int, now: float) -> float:
        device.live += 1
        device.order.append(place)
        if self._turns is not None:
            # turns run out of order; `first` moves on over all that are done, each once
            device.done.add(self._turns[place].pop())
            while device.first in device.done:
                device.done.remove(device.first)
                device.first += 1
        end = now + self._forward[place]
        if place in self._last:
            # the last stage's own backward: nothing has to travel
            self._at(end, self._places + place)
        else:
            self._at(end + self._down[place], place + 1)
        return end

    def _run_backward(self, device: _Device, place: int, now: float) -> float:
        device.order.append(self._places + place)
        if self._apart:
            # alive until its W has run: that is what frees the activations
            device.late.append(place)
        else:
            device.live -= 1
        if place not in self._first:
            # the gradient leaves when it is made, which may be before B is through (B is I, then W)
            self._at(now + self._gradient[place] + self._up[place], self._places + place - 1)
        return now + self._backward[place]
