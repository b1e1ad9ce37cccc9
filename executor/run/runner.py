"""The one interpreter of a device's tasks, whatever the workers are and whatever a task does.

    for every task of the device, in order:
        take what it needs from its ports      (waits: transfers, reductions)
        begin ── body ── finish                (the recorded span)
        put its results into its ports         (never waits)
        free the ports whose values nobody reads any more

Everything is looked up before the run: a task holds its ports and its body.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from executor.plan.actions import PlannedAction
from executor.plan.decisions import PlannedDecision
from executor.plan.hand_overs import HandOver
from executor.plan.lifetimes import last_readers
from executor.plan.local import LOCAL
from executor.plan.plan import Plan
from executor.plan.reductions import PlannedReduction
from executor.run.clock import Recorder
from executor.run.decision import Meeting, decision_plan
from executor.workers.base import ExchangePlan, Port, Sink, ValueSource, Workers
from executor.workers.ports import LocalExchange, LocalSlot
from schedir.ir.action import Direction, Kind
from schedir.ir.graph import TaskGraph

Body = Callable[..., Any]
"""What an action does: it takes the value handed over to it, if any, and returns the one that it hands on."""


class Crew(Protocol):
    """What tasks do: real training, or sleeping."""

    def body(self, action: PlannedAction) -> Body:
        """Return what an action does."""
        ...

    def share(self, reduction: PlannedReduction, number: int) -> Callable[[], Any]:
        """Return what takes the share of a member of a reduction; it is complete behind the member's task."""
        ...

    def total(self, reduction: PlannedReduction) -> Callable[[Sequence[Any]], Any]:
        """Return what makes the total of all shares."""
        ...


@dataclass(slots=True)
class BoundTask:
    """A task with everything it needs."""

    index: int
    waits: tuple[ValueSource, ...]
    """Values that must have arrived, but are for another task."""
    sources: tuple[ValueSource, ...]
    body: Body
    sinks: tuple[Sink, ...]
    frees: tuple[ValueSource, ...]
    """Whose values nobody reads behind it."""


def carry_out(task: BoundTask, recorder: Recorder) -> None:
    """Do one task: take what it needs, run and record it, hand over its results."""
    for source in task.waits:
        source.wait()
    # before the clock starts: what a task waits for is no part of its span
    values = [source.take() for source in task.sources]
    recorder.begin(task.index)
    result = task.body(*values)
    recorder.finish(task.index)
    for sink in task.sinks:
        sink.put(result)
    for source in task.frees:
        source.free()


class Runner:
    """Runs passes over one graph."""

    def __init__(self, graph: TaskGraph, plan: Plan, crew: Crew, *, workers: Workers, recorder: Recorder) -> None:
        self._graph, self._workers, self._recorder = graph, workers, recorder
        tasks = _Binder(graph, plan, crew, workers=workers).bind()
        self._work = [
            partial(self._run_device, device, [tasks[index] for index in plan.device_tasks[device]]) for device in workers.devices
        ]

    def run_once(self) -> None:
        """Run the whole graph; raise the first error of any device."""
        self._recorder.reset()
        self._workers.run(self._work)

    def _run_device(self, device: int, tasks: list[BoundTask]) -> None:
        check, recorder = self._workers.check, self._recorder
        index = -1
        try:
            for task in tasks:
                index = task.index
                # before every task, since a halted run has to end at the next one, whoever failed
                check(device, index)
                carry_out(task, recorder)
        except BaseException as error:
            # a note, not an error of our own: users catch what their stages raise by its type
            error.add_note(f"in {self._graph.label(index)} on device {device} ({self._described(index)})")
            raise

    def _described(self, index: int) -> str:
        task = self._graph.task(index)
        what = "update" if task.kind is Kind.UPDATE else f"micro-batch {task.micro_batch}"
        return f"stage {task.stage}, {what}"


class _Binder:
    """Gives every compute task of this process's devices its ports and its body."""

    def __init__(self, graph: TaskGraph, plan: Plan, crew: Crew, *, workers: Workers) -> None:
        self._graph, self._plan, self._crew, self._workers = graph, plan, crew, workers
        self._sources: dict[tuple[int, int], list[ValueSource]] = defaultdict(list)
        """By (task, half)."""
        self._sinks: dict[tuple[int, int], list[Sink]] = defaultdict(list)
        self._channels: dict[int, ValueSource] = {}
        """By transfer."""
        self._device = graph.device.tolist()
        self._own = {task for device in workers.devices for task in plan.device_tasks[device]}

    def bind(self) -> dict[int, BoundTask]:
        """Return the compute tasks by number."""
        for hand_over in self._plan.hand_overs:
            self._bind_hand_over(hand_over)
        for reduction in self._plan.reductions:
            self._bind_reduction(reduction)
        waits: dict[int, list[ValueSource]] = defaultdict(list)
        for task, transfer in self._plan.awaited:
            if task in self._own:
                waits[task].append(self._channels[transfer])
        for decision in self._plan.decisions:
            self._bind_decision(decision, waits)
        frees: dict[int, list[ValueSource]] = defaultdict(list)
        # lent memory may be used again only behind its last reader, which for a stage's input is the backward
        last = last_readers(self._plan)
        for taker, sources in self._sources.items():
            frees[last[taker]] += sources
        return {index: self._bind_task(index, tuple(waits[index]), tuple(frees[index])) for index in sorted(self._own)}

    def _bind_hand_over(self, hand_over: HandOver) -> None:
        # a process makes its own end of a hand-over, both ends where it has both
        transfer = hand_over.transfer
        sends, receives = hand_over.producer[0] in self._own, hand_over.consumer[0] in self._own
        if not (sends or receives):
            return
        ends = self._device[hand_over.producer[0]], self._device[hand_over.consumer[0]]
        port = LocalSlot() if transfer == LOCAL else self._workers.channel(transfer, self._name(transfer), ends=ends)
        if sends:
            self._sinks[hand_over.producer].append(part_of(port, hand_over))
        if receives:
            self._channels[transfer] = port
            self._sources[hand_over.consumer].append(port)

    def _name(self, transfer: int) -> str:
        task = self._graph.task(transfer)
        what = "output" if task.direction is Direction.FORWARD else "input gradient"
        return f"the {what} of stage {task.stage} for micro-batch {task.micro_batch} ({self._graph.lanes[task.lane]})"

    def _bind_reduction(self, reduction: PlannedReduction) -> None:
        if self._own.isdisjoint(reduction.takers):
            return
        total = self._crew.total(reduction)
        members, takers = (tuple(self._device[task] for task in tasks) for tasks in (reduction.members, reduction.takers))
        plan = ExchangePlan(reduction.task, reduction.name, members, takers, total)
        exchange = LocalExchange(plan) if reduction.task == LOCAL else self._workers.exchange(plan)
        for number, member in enumerate(reduction.members):
            if member not in self._own:
                continue
            share = Share(self._crew.share(reduction, number), exchange.member(number))
            sinks = self._sinks[member, 0]
            sinks.insert(0 if reduction.tie else len(sinks), share)  # a tie's share is looked up, that of replicas is taken away
        for number, taker in enumerate(reduction.takers):
            if taker in self._own:
                self._sources[taker, 0].append(exchange.taker(number))

    def _bind_decision(self, decision: PlannedDecision, waits: dict[int, list[ValueSource]]) -> None:
        if decision.task == LOCAL or self._own.isdisjoint(decision.takers):
            return
        exchange = self._workers.exchange(decision_plan(decision))
        for number, device in enumerate(decision.devices):
            updates = [task for task in decision.takers if self._device[task] == device and task in self._own]
            if updates:
                meeting = Meeting(exchange, number, num_updates=len(updates))
                for task in updates:
                    waits[task].append(meeting)

    def _bind_task(self, index: int, waits: tuple[ValueSource, ...], frees: tuple[ValueSource, ...]) -> BoundTask:
        actions = self._plan.tasks[index]
        keys = [(index, action.half) for action in actions]
        sources = tuple(source for key in keys for source in self._sources.get(key, ()))
        bodies = [self._crew.body(action) for action in actions]
        if len(actions) == 1:
            return BoundTask(index, waits, sources, bodies[0], tuple(self._sinks[keys[0]]), frees)
        # of a pair the values of both halves come in one row, the forward's first; each half's sinks take its own result
        body = partial(run_both, bodies[0], bodies[1], len(self._sources.get(keys[0], ())))
        sinks = tuple(Half(sink, half) for half, key in enumerate(keys) for sink in self._sinks[key])
        return BoundTask(index, waits, sources, body, sinks, frees)


def run_both(forward: Body, backward: Body, forward_takes: int, *values: object) -> tuple[Any, Any]:
    """Run the two actions of an overlapped pair one after the other; the first `forward_takes` values are the forward's."""
    return forward(*values[:forward_takes]), backward(*values[forward_takes:])


@dataclass(frozen=True, slots=True)
class Half:
    """A sink that takes one of the two results of an overlapped pair."""

    sink: Sink
    half: int

    def put(self, value: Any) -> None:
        self.sink.put(value[self.half])


def part_of(port: Port, hand_over: HandOver) -> Sink:
    """Return what takes a hand-over's value of those that its producer makes."""
    return port if hand_over.part is None else PartSink(port, hand_over.part)


@dataclass(frozen=True, slots=True)
class PartSink:
    """A sink that takes one of the values of a stage with skip connections."""

    sink: Sink
    part: int

    def put(self, value: Any) -> None:
        self.sink.put(None if value is None else value[self.part])  # emulated tasks make nothing


@dataclass(frozen=True, slots=True)
class Share:
    """A sink of a reduction: hands over the sum that is complete now, whatever the task returned."""

    share: Callable[[], Any]
    sink: Sink

    def put(self, value: Any) -> None:  # noqa: ARG002 - one signature for all sinks
        self.sink.put(self.share())
