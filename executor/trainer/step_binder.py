"""Give the tasks of a step their ports and their work, wherever the step stands in an endless row.

A hand-over is known by (direction, the stage that makes it, micro-batch). Its port is made when its producer is bound and gone from
here once its consumer is, which may be some steps later; likewise the exchange of a replicated stage's gradients.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from executor.plan.actions import PlannedAction
from executor.plan.hand_overs import HandOver
from executor.plan.lifetimes import last_readers
from executor.plan.local import LOCAL
from executor.plan.reductions import PlannedReduction
from executor.plan.steps import Move, StepTable
from executor.run.crew import TrainingCrew
from executor.run.runner import Body, BoundTask, Half, Share, part_of, run_both
from executor.stage.feed import Supply
from executor.workers.base import Exchange, ExchangePlan, Port, Sink, ValueSource, Workers
from executor.workers.ports import LocalExchange, LocalSlot
from schedir.ir.action import Direction, Kind

Key = tuple[Direction, int, int, int]
"""(direction, stage that makes it, stage that takes it, micro-batch) of a hand-over."""
Reader = tuple[Kind, int, int]
"""(kind, stage, micro-batch) of a task."""
MakeBody = Callable[[int, PlannedAction], Body]
"""(device, action) -> what it does."""


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The hand-overs of a table by the tasks at their ends."""

    sources: dict[tuple[int, int], list[HandOver]]
    """By consumer (task, half)."""
    sinks: dict[tuple[int, int], list[HandOver]]
    """By producer (task, half)."""
    awaited: dict[int, list[HandOver]]
    """By task that waits for what another takes."""
    shares: dict[int, list[tuple[PlannedReduction, int]]]
    """By member: its reductions and its numbers there."""
    totals: dict[int, list[tuple[PlannedReduction, int]]]
    """By taker: its reductions (over replicas, then of a tie) and its numbers there."""
    last_reader: dict[tuple[int, int], int]
    """By consumer (task, half): the task behind which nobody reads what it took."""

    @classmethod
    def of(cls, table: StepTable) -> Links:
        """Look everything up once."""
        plan, sinks, awaited = table.plan, defaultdict(list), defaultdict(list)
        sources: dict[tuple[int, int], list[HandOver]] = defaultdict(list)
        shares: dict[int, list[tuple[PlannedReduction, int]]] = defaultdict(list)
        totals: dict[int, list[tuple[PlannedReduction, int]]] = defaultdict(list)
        by_transfer = {hand_over.transfer: hand_over for hand_over in plan.hand_overs}
        for hand_over in plan.hand_overs:
            sinks[hand_over.producer].append(hand_over)
            sources[hand_over.consumer].append(hand_over)
        for task, transfer in plan.awaited:
            awaited[task].append(by_transfer[transfer])
        for reduction in plan.reductions:
            for numbered, tasks in ((shares, reduction.members), (totals, reduction.takers)):
                for number, task in enumerate(tasks):
                    numbered[task].append((reduction, number))
        return cls(
            sources=sources,
            sinks=sinks,
            awaited=awaited,
            shares=shares,
            totals=totals,
            last_reader=last_readers(plan),
        )


@dataclass(slots=True)
class StepTask(BoundTask):
    """A task of a step, with everything it needs."""

    action: PlannedAction
    """The first that it does."""
    label: str
    """Says in errors which task it is."""


@dataclass(slots=True)
class _OpenExchange:
    exchange: Exchange
    unbound: int
    """Members and takers that are not bound yet."""


class StepBinder:
    """Binds one step after the other."""

    def __init__(self, crew: TrainingCrew, workers: Workers, feed: Supply, *, make_body: MakeBody) -> None:
        self.crew, self.workers, self.feed, self.make_body = crew, workers, feed, make_body
        self._links: dict[StepTable, Links] = {}
        self.ports: dict[Key, Port] = {}
        """Of hand-overs whose consumer is not bound yet."""
        self.exchanges: dict[tuple[int, tuple[int, ...], int], _OpenExchange] = {}
        """By (stage, tie, update)."""
        self.lent: dict[Reader, list[ValueSource]] = {}
        """What a task that is not bound yet is the last to read."""

    def bind(self, table: StepTable, step: int, move: Move) -> list[list[StepTask]]:
        """Return the tasks of a step by device; of another process's none."""
        # a drain, and a program in its start-up, have tables of their own
        if table not in self._links:
            self._links[table] = Links.of(table)
        return _Binding(self, table, self._links[table], move=move).bind(step)

    def reset(self) -> None:
        """Forget what is open: the pipeline is empty."""
        self.ports.clear()
        self.exchanges.clear()
        self.lent.clear()


class _Binding:
    """One step on its way to bound tasks."""

    def __init__(self, binder: StepBinder, table: StepTable, links: Links, *, move: Move) -> None:
        self._binder, self._table, self._links, self._move = binder, table, links, move
        self._made: dict[Key, Port] = {}

    def bind(self, step: int) -> list[list[StepTask]]:
        """Bind all devices' tasks: every port is made before anybody looks for it."""
        devices = self._table.device_tasks[step]
        for tasks in devices:
            for task in tasks:
                self._open(task)
        own = self._binder.workers.devices
        return [[self._bind(task, device) for task in tasks if device in own] for device, tasks in enumerate(devices)]

    def _open(self, task: int) -> None:
        """Make the ports that a task puts into."""
        for half in range(len(self._table.plan.tasks[task])):
            for hand_over in self._links.sinks.get((task, half), ()):
                self._open_one(hand_over)

    def _open_one(self, hand_over: HandOver) -> None:
        """Make a port that starts or ends in this process; one that ends here is kept until it does."""
        own, (sender, receiver) = self._binder.workers.devices, self._ends(hand_over)
        if sender in own or receiver in own:
            port = self._made[self._key(hand_over)] = self._port(hand_over)
            if receiver in own:
                self._binder.ports[self._key(hand_over)] = port

    def _ends(self, hand_over: HandOver) -> tuple[int, int]:
        device = self._table.graph.device
        return int(device[hand_over.producer[0]]), int(device[hand_over.consumer[0]])

    def _port(self, hand_over: HandOver) -> Port:
        if hand_over.transfer == LOCAL:
            return LocalSlot()
        direction, stage, _, j = self._key(hand_over)
        what = "output" if direction is Direction.FORWARD else "input gradient"
        name = f"the {what} of stage {stage} for {self._micro_batch(j)}"
        task = self._table.name(hand_over.transfer, self._move)
        return self._binder.workers.channel(task, name, ends=self._ends(hand_over))

    def _key(self, hand_over: HandOver) -> Key:
        task, half = hand_over.producer
        action = self._table.plan.tasks[task][half]
        taker, half = hand_over.consumer
        later = self._move.steps * self._table.graph.program.num_micro_batches
        return action.direction, action.stage, self._table.plan.tasks[taker][half].stage, action.micro_batch + later

    def _bind(self, task: int, device: int) -> StepTask:
        table, binder = self._table, self._binder
        actions = [table.moved(action, self._move) for action in table.plan.tasks[task]]
        keys = [(task, half) for half in range(len(actions))]
        # left in place: the backward that stands behind takes what this one only waits for
        waits: tuple[ValueSource, ...] = tuple(binder.ports[self._key(each)] for each in self._links.awaited.get(task, ()))
        taken = [self._take(key) for key in keys]
        for key, own in zip(keys, taken, strict=True):
            if own:
                binder.lent.setdefault(self._reader(self._links.last_reader[key]), []).extend(own)
        sources, frees = tuple(source for own in taken for source in own), tuple(binder.lent.pop(self._reader(task), ()))
        sinks = [self._sinks(key, device) for key in keys]
        bodies = [binder.make_body(device, action) for action in actions]
        name, label = table.name(task, self._move), self._label(actions)
        if len(actions) == 1:
            return StepTask(name, waits, sources, bodies[0], tuple(sinks[0]), frees, actions[0], label)
        forward_takes = len(taken[0])
        halves = tuple(Half(sink, half) for half, own in enumerate(sinks) for sink in own)

        def body(*values: object) -> object:
            return run_both(bodies[0], bodies[1], forward_takes, *values)

        return StepTask(name, waits, sources, body, halves, frees, actions[0], label)

    def _take(self, key: tuple[int, int]) -> list[ValueSource]:
        """Return where an action gets its values, if it takes any."""
        if key in self._links.sources:
            return [self._binder.ports.pop(self._key(hand_over)) for hand_over in self._links.sources[key]]
        task, half = key
        # an update is never half of a pair, so totals are looked for once
        return [] if half else [self._exchange(reduction).taker(number) for reduction, number in self._links.totals.get(task, ())]

    def _reader(self, task: int) -> Reader:
        action = self._table.plan.tasks[task][0]
        return action.kind, action.stage, action.micro_batch + self._move.steps * self._table.graph.program.num_micro_batches

    def _sinks(self, key: tuple[int, int], device: int) -> list[Sink]:
        hand_overs = self._links.sinks.get(key, ())
        found: list[Sink] = [part_of(self._made[self._key(hand_over)], hand_over) for hand_over in hand_overs]
        task, half = key
        # a tie's share is looked up, so it comes before that of replicas, which is taken away
        # of a pair, whose gradient its second half makes, once: the share is taken when the whole task is over
        for reduction, number in reversed(self._links.shares.get(task, ())) if half == 0 else ():
            moved = self._table.moved_reduction(reduction, self._move)
            share = self._binder.crew.share_on(device, moved, number)
            found.append(Share(share, self._exchange(reduction).member(number)))
        return found

    def _exchange(self, reduction: PlannedReduction) -> Exchange:
        moved = self._table.moved_reduction(reduction, self._move)
        key = moved.stage, moved.tie, moved.update
        exchanges = self._binder.exchanges
        if key not in exchanges:
            total = self._binder.crew.total(moved)
            device = self._table.graph.device
            members, takers = (tuple(int(device[task]) for task in tasks) for tasks in (moved.members, moved.takers))
            plan = ExchangePlan(moved.task, moved.name, members, takers, total)
            exchange = LocalExchange(plan) if moved.task == LOCAL else self._binder.workers.exchange(plan)
            own = self._binder.workers.devices
            exchanges[key] = _OpenExchange(exchange, sum(device in own for device in (*members, *takers)))
        found = exchanges[key]
        found.unbound -= 1
        if not found.unbound:
            del exchanges[key]
        return found.exchange

    def _label(self, actions: list[PlannedAction]) -> str:
        first = actions[0]
        where = "update" if first.kind is Kind.UPDATE else self._micro_batch(first.micro_batch)
        return f"{first.stage}{first.kind.letter}{first.micro_batch} (stage {first.stage}, {where})"

    def _micro_batch(self, micro_batch: int) -> str:
        mini_batch, place = divmod(micro_batch, self._table.graph.program.num_micro_batches)
        return f"micro-batch {place} of mini-batch {self._binder.feed.first_mini_batch + mini_batch}"
