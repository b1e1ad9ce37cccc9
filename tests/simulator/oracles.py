"""Plain walks through a run: what the engines are held against. One step after the other, no events and no arrays."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from simulator.network import Conditions, Shared, SharingRule

CLOSE = 1e-9
"""Seconds, and parts of a rate: what belongs together in spite of rounding."""

Spans = list[tuple[float, float]]
"""(start, release) by task."""


def sources_of(graph: TaskGraph) -> list[list[int]]:
    return [graph.sources(task).tolist() for task in range(graph.num_tasks)]


# ---------------------------------------------------------------- things in common


@dataclass
class EventLoop:
    """A run in which lanes share things and change their speed: from one end or begin to the next, rates worked out anew each time.

    Where two ask for a thing at one time, the task with the smaller number is the first.
    """

    graph: TaskGraph
    times: TaskTimes
    conditions: Conditions
    now: float = 0.0
    left: dict[int, float] = field(default_factory=dict)
    """By task at work: seconds that it would still take alone."""
    start: dict[int, float] = field(default_factory=dict)
    release: dict[int, float] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    """Tasks that have asked, in this order, and have not ended."""

    def __post_init__(self) -> None:
        self.sources, self.lane = sources_of(self.graph), self.graph.lane.tolist()
        self.heads = set(self.graph.lane_start.tolist())
        self.gaps = self.times.gaps(self.graph.num_compute_tasks).tolist()
        self.latency = [0.0] * self.graph.num_tasks if self.times.latency is None else self.times.latency.tolist()
        self.waiting = list(range(self.graph.num_tasks))

    def run(self) -> Spans:
        while self.waiting or self.asked:
            self._hear()
            self._begin()
            self._advance()
        return [(self.start[task], self.release[task]) for task in range(self.graph.num_tasks)]

    def _asks_at(self, task: int) -> float:
        """Return when a task asks to be served, infinity if that is not known yet; a message asks when it is made."""
        computes = task < self.graph.num_compute_tasks
        before = [task - 1] if computes and task not in self.heads else []
        if any(other not in self.release for other in [*self.sources[task], *before]):
            return float("inf")
        ends = [self.release[other] + self.latency[other] for other in self.sources[task]]
        gap = self.gaps[task] if computes else 0.0
        return max([0.0, *(self.release[other] for other in before), *ends]) + gap

    def _hear(self) -> None:
        for task in [task for task in self.waiting if self._asks_at(task) <= self.now + CLOSE]:
            self.waiting.remove(task)
            self.asked.append(task)

    def _begin(self) -> None:
        lines = [thing.demand for thing in self.conditions.shared if thing.rule is SharingRule.FIFO]
        for place, task in enumerate(self.asked):
            ahead = {self.lane[other] for other in self.asked[:place]}
            taken = self.lane[task] in ahead or any(self.lane[task] in users and ahead & users.keys() for users in lines)
            if task not in self.left and not taken:
                self.left[task] = float(self.times.duration[task])
                self.start[task] = self.now

    def _advance(self) -> None:
        rates = self._rates()
        ends = {task: self.now + left / rates[task] for task, left in self.left.items() if rates[task] > 0}
        changes = [at for speed in self.conditions.speeds.values() for at in speed.since if at > self.now + CLOSE]
        then = min([*ends.values(), *(self._asks_at(task) for task in self.waiting), *changes])
        assert then < float("inf")
        for task in list(self.left):
            self.left[task] -= rates[task] * (then - self.now)
            if ends.get(task, float("inf")) <= then + CLOSE:
                del self.left[task]
                self.asked.remove(task)
                self.release[task] = then
        self.now = then

    def _rates(self) -> dict[int, float]:
        shares = fair_shares([self.lane[task] for task in self.left], self.conditions.shared)
        return {task: shares[self.lane[task]] * self._factor(self.lane[task]) for task in self.left}

    def _factor(self, lane: int) -> float:
        if lane not in self.conditions.speeds:
            return 1.0
        speed = self.conditions.speeds[lane]
        return [factor for since, factor in zip(speed.since, speed.factor, strict=True) if since <= self.now + CLOSE][-1]


def fair_shares(lanes: Sequence[int], shared: Sequence[Shared]) -> Mapping[int, float]:
    """Return by lane the share of its demand that it gets: all rise together until they have enough or a thing is used up."""
    things = [(thing.demand, thing.capacity) for thing in shared if thing.rule is SharingRule.FAIR]
    asked = {lane: max([users[lane] for users, _ in things if lane in users], default=1.0) for lane in lanes}
    rate, rising = dict.fromkeys(lanes, 0.0), set(lanes)
    while rising:
        steps = [asked[lane] - rate[lane] for lane in rising]
        for users, capacity in things:
            if up := rising & users.keys():
                steps.append((capacity - sum(rate[lane] for lane in lanes if lane in users)) / len(up))
        for lane in rising:
            rate[lane] += min(steps)
        full = [users for users, capacity in things if sum(rate[lane] for lane in lanes if lane in users) >= capacity - CLOSE]
        rising = {lane for lane in rising if rate[lane] < asked[lane] - CLOSE and not any(lane in users for users in full)}
    return {lane: rate[lane] / asked[lane] for lane in lanes}


# ---------------------------------------------------------------- sends that wait


@dataclass
class Meetings:
    """A run under blocking sends: every device has a list of what it does, and a transfer takes place where two have come to it."""

    graph: TaskGraph
    times: TaskTimes
    start: dict[int, float] = field(default_factory=dict)
    release: dict[int, float] = field(default_factory=dict)
    seen: dict[tuple[int, int], float] = field(default_factory=dict)
    """By (source, target): when the target may start as far as this source is concerned."""
    free: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    """By lane of a link or reduction."""

    def __post_init__(self) -> None:
        graph = self.graph
        self.sources, self.kind = sources_of(graph), graph.kind.tolist()
        self.latency = [0.0] * graph.num_tasks if self.times.latency is None else self.times.latency.tolist()
        self.readers: list[list[int]] = [[] for _ in self.sources]
        for task, sources in enumerate(self.sources):
            for source in sources:
                self.readers[source].append(task)
        self.clock = [0.0] * graph.program.num_devices
        self.todo = [self._list(device) for device in range(graph.program.num_devices)]
        reductions = range(graph.num_compute_tasks, graph.num_tasks)
        self.reductions = [task for task in reductions if self.kind[task] == Kind.REDUCE]

    def _list(self, device: int) -> list[tuple[str, int, int]]:
        """Return (what, task, other task) of all that a device does, in order."""
        found: list[tuple[str, int, int]] = []
        taken: set[int] = set()
        for task in self.graph.lane_range(device):
            for source in self.sources[task]:
                if self.kind[source] == Kind.TRANSFER and source not in taken:
                    taken.add(source)
                    found.append(("receive", source, task))
            found.append(("compute", task, task))
            words = ["send" if self.kind[reader] == Kind.TRANSFER else "tell" for reader in self.readers[task]]
            found.extend((word, reader, task) for word, reader in zip(words, self.readers[task], strict=True))
        return found

    def run(self) -> Spans | None:
        """Return the spans, None if devices wait for each other."""
        while any(self.todo):
            if not any([self._step(device) for device in range(len(self.todo))] + [self._reduce()]):
                return None
        return [(self.start[task], self.release[task]) for task in range(self.graph.num_tasks)]

    def _step(self, device: int) -> bool:
        if not self.todo[device]:
            return False
        what, task, other = self.todo[device][0]
        if what == "compute":
            return self._compute(device, task)
        if what == "tell":
            self.seen[other, task] = self.clock[device] + self.latency[other]
            self.todo[device].pop(0)
            return True
        return what == "send" and self._send(device, task)

    def _compute(self, device: int, task: int) -> bool:
        if any((source, task) not in self.seen for source in self.sources[task]):
            return False
        at = max([self.clock[device], *(self.seen[source, task] for source in self.sources[task])])
        self.start[task] = at + self.times.gaps(self.graph.num_compute_tasks)[task]
        self.clock[device] = self.release[task] = self.start[task] + self.times.duration[task]
        self.todo[device].pop(0)
        return True

    def _send(self, device: int, transfer: int) -> bool:
        lane = int(self.graph.lane[transfer])
        peer = self.graph.lanes[lane].peer
        if not self.todo[peer] or self.todo[peer][0][:2] != ("receive", transfer):
            return False
        self.start[transfer] = max(self.clock[device], self.clock[peer], self.free[lane])
        self.release[transfer] = self.free[lane] = self.start[transfer] + self.times.duration[transfer]
        self.clock[device] = self.release[transfer]
        self.clock[peer] = self.release[transfer] + self.latency[transfer]
        for reader in self.readers[transfer]:
            self.seen[transfer, reader] = self.clock[peer]
        self.todo[device].pop(0)
        self.todo[peer].pop(0)
        return True

    def _reduce(self) -> bool:
        """Add up whatever is complete."""
        complete = [task for task in self.reductions if all((source, task) in self.seen for source in self.sources[task])]
        for task in complete:
            lane = int(self.graph.lane[task])
            self.start[task] = max([self.free[lane], *(self.seen[source, task] for source in self.sources[task])])
            self.release[task] = self.free[lane] = self.start[task] + self.times.duration[task]
            for reader in self.readers[task]:
                self.seen[task, reader] = self.release[task] + self.latency[task]
            self.reductions.remove(task)
        return bool(complete)
