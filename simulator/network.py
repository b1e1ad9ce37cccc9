"""What several lanes use at the same time (a host's network card, a link of all hosts, cores that devices share), and speeds
that change during a run.

Two rules. `fifo`: one task at a time, in the order of their requests. `fair`: all at once, by processor sharing; what there is
is divided so that the least served gets as much as possible (max-min fairness, by filling up step by step):

    rate of a task = what it asks for at most, or its share of the fullest thing that it uses, whichever is less

A task may use several things at once, a sender's card and a receiver's; it starts when it is the first in every queue. Its own
lane is a queue, too. A task that is never slowed ends at start + work, to the last bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from simulator.clock import Clock


class SharingRule(StrEnum):
    """How lanes share a thing."""

    FIFO = "fifo"
    FAIR = "fair"


@dataclass(frozen=True, slots=True)
class Shared:
    """One thing that several lanes use."""

    rule: SharingRule
    demand: Mapping[int, float]
    """By lane that uses it: what one task uses at most, above 0, in any unit (bytes per second, cores)."""
    capacity: float
    """What there is, above 0, in the same unit; under `fifo` a task has all of it."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a lane works over time, as a factor on the speed that its durations are for."""

    since: tuple[float, ...]
    """When each factor begins to hold, in seconds, increasing; the first is 0."""
    factor: tuple[float, ...]
    """At least 0, the last above 0."""

    def at(self, now: float) -> float:
        """Return the factor that holds from now on."""
        return self.factor[bisect_right(self.since, now) - 1]

    def next_change(self, now: float) -> float | None:
        """Return when the factor changes next, or None."""
        following = bisect_right(self.since, now)
        return self.since[following] if following < len(self.since) else None


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the devices and links of a run share, and how fast they are when; nothing of it is known to the in-order pass."""

    shared: tuple[Shared, ...] = ()
    speeds: Mapping[int, Speed] = field(default_factory=dict)
    """By lane; 1 throughout for those not named."""

    def __bool__(self) -> bool:
        return bool(self.shared or self.speeds)


@dataclass(slots=True, eq=False)
class _Flow:
    """One task, waiting or at work. Its rate is the share of the speed that it would have alone at factor 1."""

    task: int
    lane: int
    left: float
    """Work left at `since`, in seconds alone at factor 1."""
    start: float = 0.0
    since: float = 0.0
    rate: float = 0.0
    plan: int = 0
    """Counts the changes of its rate: a planned end is void if another plan was made since."""


class Network:
    """Serves the tasks of lanes that share something or change their speed.

    Calls `served(task, lane, start)` at the end of each, with the time when it was first in every queue.
    """

    def __init__(self, clock: Clock, conditions: Conditions, num_lanes: int) -> None:
        self._clock, self._conditions = clock, conditions
        self.served: Callable[[int, int, float], None]
        self._queues: list[deque[_Flow]] = [deque() for _ in range(num_lanes + len(conditions.shared))]
        self._lines = [[lane] for lane in range(num_lanes)]  # by lane: queues to be the first of
        self._uses: list[dict[int, float]] = [{} for _ in range(num_lanes)]  # by lane: demand by number of the fair thing
        for number, thing in enumerate(conditions.shared):
            for lane, demand in thing.demand.items():
                if thing.rule is SharingRule.FIFO:
                    # the thing's own queue, behind those of the lanes
                    self._lines[lane].append(num_lanes + number)
                else:
                    self._uses[lane][number] = demand
        self._working: dict[int, _Flow] = {}  # by lane
        self.serves = [
            len(self._lines[lane]) > 1 or bool(self._uses[lane]) or lane in conditions.speeds for lane in range(num_lanes)
        ]

    def request(self, task: int, lane: int, at: float, *, work: float) -> None:
        """Ask, not before now, to serve a task from `at` on; `work` is its duration alone at factor 1, in seconds."""
        flow = _Flow(task, lane, work)
        # a call for now would come behind all else that is due now, and so change who is first
        if at > self._clock.now:
            self._clock.call(partial(self._arrive, flow), at)
        else:
            self._arrive(flow)

    def _arrive(self, flow: _Flow) -> None:
        for line in self._lines[flow.lane]:
            self._queues[line].append(flow)
        self._start_if_first(flow)

    def _start_if_first(self, flow: _Flow) -> None:
        if flow.lane in self._working or any(self._queues[line][0] is not flow for line in self._lines[flow.lane]):
            return
        # first in every queue: what is fifo is its own until it ends
        flow.start = flow.since = self._clock.now
        self._working[flow.lane] = flow
        self._level(flow.lane)
        self._watch(flow)

    def _end(self, flow: _Flow, plan: int) -> None:
        # its rate has changed since this end was planned; the clock cannot take back a call
        if plan != flow.plan:
            return
        # first those that stay get what it leaves, then the next in every queue begins and shares with them
        del self._working[flow.lane]
        self._level(flow.lane)
        for line in self._lines[flow.lane]:
            self._queues[line].popleft()
        for line in self._lines[flow.lane]:
            if self._queues[line]:
                self._start_if_first(self._queues[line][0])
        # last: whoever hears it may ask for the next task of this lane
        self.served(flow.task, flow.lane, flow.start)

    def _watch(self, flow: _Flow) -> None:
        """Look at a flow again whenever its lane's speed changes."""
        speed = self._conditions.speeds.get(flow.lane)
        change = speed.next_change(self._clock.now) if speed else None
        if change is not None:
            self._clock.call(partial(self._look_again, flow), change)

    def _look_again(self, flow: _Flow) -> None:
        if self._working.get(flow.lane) is flow:
            self._level(flow.lane)
            self._watch(flow)

    def _level(self, lane: int) -> None:
        """Set the rates of all that work on this lane, or share something with it, directly or over others."""
        now, speeds = self._clock.now, self._conditions.speeds
        for other, share in self._fill(self._neighbours(lane)).items():
            flow = self._working[other]
            rate = share * speeds[other].at(now) if other in speeds else share
            if rate == flow.rate:
                continue
            # only where it changes: work done at the old rate is taken off, and a task never slowed ends at start + work exactly
            flow.left = max(flow.left - (now - flow.since) * flow.rate, 0.0)
            flow.since, flow.rate, flow.plan = now, rate, flow.plan + 1
            if rate > 0.0:
                self._clock.call(partial(self._end, flow, flow.plan), now + flow.left / rate)

    def _neighbours(self, lane: int) -> list[int]:
        # everything that hangs together by things in common: a change here moves shares there
        found, open_lanes = {lane}, [lane]
        while open_lanes:
            for number in self._uses[open_lanes.pop()]:
                new = [other for other in self._conditions.shared[number].demand if other in self._working and other not in found]
                found.update(new)
                open_lanes.extend(new)
        # sorted: sums of floats depend on the order, and that of a set is no promise
        return sorted(found & self._working.keys())

    def _fill(self, lanes: Sequence[int]) -> dict[int, float]:
        """Return by lane the share of its demand that it gets. One round serves all that ask for little, or empties a thing."""
        share = {lane: 1.0 for lane in lanes if not self._uses[lane]}
        asking = {lane: self._uses[lane] for lane in lanes if self._uses[lane]}
        left = {number: self._conditions.shared[number].capacity for uses in asking.values() for number in uses}
        while asking:
            users = {number: [lane for lane, uses in asking.items() if number in uses] for number in left}
            # water filling. `level` is the smallest equal share of what is left of a thing, over all things:
            #   who asks for no more than that anywhere gets all of it, which leaves more for the others;
            #   if nobody does, the users of that thing get the level at most, and are done with
            level, fullest = min((left[number] / len(found), number) for number, found in users.items() if found)
            modest = [lane for lane, uses in asking.items() if max(uses.values()) <= level]
            for lane in modest or users[fullest]:
                uses = asking.pop(lane)
                share[lane] = min(1.0, level / max(uses.values()))
                for number, demand in uses.items():
                    left[number] = max(left[number] - demand * share[lane], 0.0)
        return dict(sorted(share.items()))
