"""Train step by step, for ever: what a trainer is made of, below its surface.

    step       micro-batches ──▶ feed;  the step's tasks ──▶ ports, work ──▶ every device's queue
    settle     steps that all devices have done: their losses, their seconds; data whose update is made is let go
    drain      what the last forwards left to do; versions count from 0 again

A stretch is what lies between two drains. Under a flush nothing is left over at the end of a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import perf_counter

import torch

from executor.model.claims import Claim
from executor.model.data import MicroBatch
from executor.model.pipeline import Pipeline
from executor.plan.actions import PlannedAction
from executor.plan.endless import Endless
from executor.plan.steps import Move, StepTable
from executor.run.crew import TrainingCrew
from executor.run.placing import Ends, ends_of, placed, placed_loss
from executor.run.ring import RingLog
from executor.run.runner import Body
from executor.stage.feed import Autocast
from executor.stage.stage import StageRuntime
from executor.stage.undisturbed import Undisturbed
from executor.trainer.conduct import Conduct
from executor.trainer.live_feed import LiveFeed
from executor.trainer.room import Room
from executor.trainer.step_binder import StepBinder
from executor.trainer.stream import Stream
from executor.trainer.updating.updates import StepUpdates
from executor.workers.team import Team, parting
from schedir.errors import RefusedError
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class Settled:
    """What is known of a step that all devices have done."""

    mini_batch: int
    loss: float
    seconds: float


@dataclass(slots=True)
class _Given:
    """A step on its way."""

    order: int
    step: int
    """In its stretch."""
    began: float
    """When it was asked for, in seconds of perf_counter."""
    finished: tuple[int, ...]
    """Mini-batches of the stretch whose update stands in it."""


class Engine:
    """One schedule, training one pipeline."""

    def __init__(self, endless: Endless, pipeline: Pipeline, conduct: Conduct, *, team: Team) -> None:
        graph = endless.table.graph
        self.endless, self.pipeline, self.team, self.timeout_s = endless, pipeline, team, conduct.timeout_s
        self.claim: Claim | None = None
        """Keeps other trainings from these stages, until this one lets go of them."""
        self.synchronous = graph.program.weights.synchronous
        self.room = Room.of(endless)
        self.recorder, self.log = team.recorder(self.room.tasks, endless=True), RingLog(self.room.tasks)
        self.workers = team.workers(graph, self.recorder, endless=True)
        self._ends = ends_of(graph)
        self.feed = self._make_feed(conduct)
        self.num_steps = 0
        """Of this stretch."""
        self.num_recorded = 0
        """Steps of the stretch whose spans are kept: this one, or the last if this one has not begun."""
        self.recorded_from = 0
        """Number of that stretch's first mini-batch."""
        # below 0, where no task of a graph has its name
        self.unrecorded: Iterator[int] = count(-1, -1)
        """Names for what is no task of the graph."""
        # of the whole process; workers set it to what one device may use
        self._num_threads = torch.get_num_threads()
        self.crew = TrainingCrew(graph, pipeline, self.feed, workers=self.workers)
        # behind both: stages are made with the feed that asks them
        self.feed.guard.first_not_finite = self.crew.first_not_finite
        self.updates = StepUpdates(conduct.rules, self.crew, self.feed, names=self.unrecorded)
        self.undisturbed: dict[StageRuntime, Undisturbed] = {}
        """By copy of a stage that is trained here; none under a flush, where the caller is never there while devices compute."""
        if not self.synchronous:
            self.undisturbed = {stage: Undisturbed(stage.number, stage.copy) for stage in self.crew.stages()}
        self._binder = StepBinder(self.crew, self.workers, self.feed, make_body=self._make_body)
        self.stream = Stream(self.workers, self.recorder, num_devices=graph.program.num_devices, timeout_s=conduct.timeout_s)
        self._way: deque[_Given] = deque()
        self._last_end = 0.0
        self._probed = False
        self._told_autocast = conduct.autocast is not None

    def _make_feed(self, conduct: Conduct) -> LiveFeed:
        pipeline, home = self.pipeline, self.workers.home(self.workers.devices[0])
        feed = LiveFeed(
            placed_loss(pipeline.loss, self._ends, self.workers),
            seed=conduct.seed,
            autocast=Autocast.of(conduct.autocast, home.device.type),
            log=self.log,
            num_micro_batches=self.graph.program.num_micro_batches,
        )
        feed.hear = self.team.hear_loss
        feed.trainable = pipeline.trainable
        feed.guard.on_nan, feed.guard.last_stage = conduct.on_nan, len(pipeline.stages) - 1
        return feed

    def _make_body(self, device: int, action: PlannedAction) -> Body:
        """Return what an action does, on a stage that nobody has disturbed."""
        body, stage = self.updates.make_body(device, action), self.crew.stage_on(device, action.stage)
        return partial(self.undisturbed[stage].run, body) if stage in self.undisturbed else body

    @property
    def depth(self) -> int:
        """Mini-batches that may be asked for before the first of them is done."""
        return self.room.depth

    @property
    def graph(self) -> TaskGraph:
        """A graph of the schedule, of as many mini-batches as were needed to see how it goes on."""
        return self.endless.table.graph

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way."""
        return not self._way

    @property
    def is_at_rest(self) -> bool:
        """No part of a mini-batch is left to do: what is changed now is changed for all that comes."""
        return self.is_idle and (self.synchronous or not self.num_steps)

    @property
    def mini_batch(self) -> int:
        """Number of the next mini-batch, counted over the whole training."""
        return self.feed.first_mini_batch + self.num_steps

    def step(self, micro_batches: Sequence[MicroBatch]) -> None:
        """Send one mini-batch on its way; wait only if too many are."""
        began = perf_counter()
        if self.num_steps == 0:
            self._begin_stretch()
        # a loss is heard when its step is done, which may be `depth` steps later
        self.team.begin_step(self.num_steps, oldest=self.num_steps - self.depth - 1)
        table, step, move = self.endless.locate(self.num_steps)
        self.feed.add(self.num_steps, placed(micro_batches, self._ends_in(step), self.workers))
        self._probe_once()
        self._give(table, step, move=move, began=began)
        self.num_steps += 1
        self.num_recorded = self.num_steps

    def settle_autocast(self) -> None:
        """Compute as the caller's thread does before the first step; raise RefusedError where it does otherwise later on.

        It has no effect in the threads of devices by itself. Not asked where the training was told a type to compute in.
        """
        feed = self.feed
        now = Autocast.current(feed.autocast.device_type)
        if self._told_autocast or now.same_as(feed.autocast):
            return
        # what stages have learned of themselves, and mini-batches on their way, are of the other type
        if self.stream.num_given:
            raise RefusedError(
                f"this step would be computed {now.words}, but the training began {feed.autocast.words}: call all steps alike, or "
                "give Trainer(autocast=…)"
            )
        feed.autocast = now

    def _ends_in(self, step: int) -> Ends:
        """Return where the forwards of a step of the graph begin and end."""
        m = self.feed.num_micro_batches
        return self._ends[step * m : (step + 1) * m]

    def _begin_stretch(self) -> None:
        self.recorder.reset()
        self.log.reset()
        self.crew.begin()
        for each in self.undisturbed.values():
            each.begin()
        self._binder.reset()
        self.team.begin()
        self.recorded_from = self.feed.first_mini_batch

    def _probe_once(self) -> None:
        if not self._probed:
            self.crew.probe(self.endless.table.plan.swapped_stages)
            self._probed = True
            for each in self.undisturbed.values():
                each.begin()  # again: the probe's forwards have counted, and whatever they do, as any other
            self.feed.tell = self.team.tell_loss  # not before: the losses of a probe are nobody's

    def _give(self, table: StepTable, step: int, *, move: Move, began: float) -> None:
        tasks = self._binder.bind(table, step, move)
        self.updates.attach(tasks, table.decision(step, move))
        finished = tuple(mini_batch + move.steps for mini_batch in table.finished[step])
        order = self.stream.give(tasks)
        self._way.append(_Given(order, step + move.steps, began, finished))

    def await_steps(self, *, but: int = 0) -> None:
        """Wait until no more than `but` steps are on their way; raise the first error of any device."""
        if len(self._way) > but:
            self.stream.wait(self._way[-1 - but].order)

    def settle(self) -> Iterator[tuple[Settled | None, tuple[int, ...]]]:
        """Yield what is known of steps that are done now, None for a drain, with the mini-batches whose update is made."""
        while self._way and self.stream.has_done(self._way[0].order):
            given = self._way.popleft()
            self.updates.settle()
            end = self.stream.take_end(given.order)
            # steps overlap: a step's own time begins when the one before it was over, or when it was asked for, whichever is later
            seconds, self._last_end = end - max(given.began, self._last_end), end
            is_step = given.step < self.num_steps
            settled = Settled(self.number(given.step), self.feed.loss_of(given.step), seconds) if is_step else None
            # behind the loss, which is added up from the data that is let go of here
            for mini_batch in given.finished:
                self.feed.release(mini_batch)
            finished = tuple(map(self.number, given.finished))
            if self.updates.log is not None:
                self.updates.log.finish(finished)
            yield settled, finished
        if not self._way:
            self.check_untouched()

    def check_untouched(self) -> None:
        """Raise RefusedError if the caller has changed a parameter here since its stage's last update; the devices are idle."""
        for stage in self.crew.stages():
            stage.weights.check_untouched(stage.number)

    def number(self, mini_batch: int) -> int:
        """Return the number of a mini-batch of this stretch, counted over the whole training."""
        return self.feed.first_mini_batch + mini_batch

    def drain(self) -> None:
        """Send what is left to do on its way."""
        if not self.synchronous and self.num_steps:
            table, step, move = self.endless.drain(self.num_steps)
            self._give(table, step, move=move, began=perf_counter())

    def end_stretch(self) -> None:
        """Begin to count anew: everything is done, and the modules have their newest weights."""
        assert not self._way
        if self.updates.log is not None:
            self.updates.log.forget()
        self.feed.clear()
        self.feed.first_mini_batch += self.num_steps
        self.num_steps = 0
        # modules get their own parameters back, newest weights in them; versions count from 0 in the next stretch
        self.crew.close()

    def go_on_from(self, mini_batch: int, seed: int) -> None:
        """Count on from a mini-batch, with stages that have got another state; the pipeline must be empty."""
        assert not self.num_steps
        self.feed.first_mini_batch, self.feed.seed = mini_batch, seed
        self.num_recorded = 0
        for stage, hosts in enumerate(self.graph.stage_devices()):
            for replica in range(1, len(hosts)):
                self.pipeline.copy(stage, replica)  # it follows its stage

    def show_newest(self) -> None:
        """Let all modules have their newest true weights, in the parameters that optimizers hold; every device must be idle."""
        for stage in self.crew.stages():
            if self.num_steps:
                stage.weights.show()
            else:
                stage.weights.restore()

    def leave(self) -> None:
        """Give every process the newest weights, and part in peace; the devices have ended, and stages are let go of next."""
        with parting(self.team):
            self.check_untouched()
            self.team.share_state()

    def let_go(self) -> None:
        """Move modules back to where they were, and let other trainings have them; a second time nothing happens."""
        self.crew.leave()
        if self.claim is not None:
            self.claim.release()

    def close(self, *, patience_s: float) -> None:
        """End the threads and give the modules their parameters back; what was begun may take `patience_s` seconds to end."""
        try:
            if self.stream.close(patience_s=patience_s):
                self.workers.close()
        finally:  # a second interrupt may come while the first one ends the threads
            self.crew.close()
            torch.set_num_threads(self._num_threads)
