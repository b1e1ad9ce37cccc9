"""What stands between a mini-batch's gradients and its update: unscale them, see whether they are finite, clip, or leave it out.

    together   every device: its stages' gradients ──▶ (sum of squares, stage not finite) ──▶ one verdict for all updates, through
               the task that `compile_program(common_update=True)` puts before them
    alone      each update by the gradients of its own stage; the only way without a flush: no moment has all gradients there

An update that is left out still counts: version v + 1 of its stage is then equal to version v, so what the graph says about who
reads which version stays true. Optimizer and schedule of rates do not step; predictions go on by the last update that was made.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from executor.plan.actions import PlannedAction
from executor.plan.decisions import PlannedDecision
from executor.plan.local import LOCAL
from executor.run.crew import TrainingCrew
from executor.run.runner import Body
from executor.stage.gradients import Sums
from executor.stage.stage import StageRuntime
from executor.trainer.live_feed import LiveFeed
from executor.trainer.step_binder import StepTask
from executor.trainer.updating.clipping import NonFinite, are_finite, squares_of
from executor.trainer.updating.loss_scaling import LossScale, unscaled
from executor.trainer.updating.update_log import UpdateLog
from executor.trainer.updating.update_rules import UpdateRules
from executor.trainer.updating.verdict import NOWHERE, Cell, Examined, Gate, StepVerdict
from executor.workers.base import ExchangePlan
from schedir.errors import RunError, SchedirWarning
from schedir.ir.action import Kind


class StepUpdates:
    """The updates of one training."""

    def __init__(self, rules: UpdateRules, crew: TrainingCrew, feed: LiveFeed, *, names: Iterator[int]) -> None:
        """Take what gradients come from; `names` are for exchanges that no task of the graph stands for."""
        self._rules, self._crew, self._feed, self._names = rules, crew, feed, names
        graph = crew.graph
        self._round_sizes: list[int] = graph.round_size.tolist()
        self._hosts = graph.stage_devices()
        self._together = rules.together(synchronous=graph.program.weights.synchronous)
        # the graph has the edges that the verdict needs: what waits in training waits in predictions too
        assert self._together == graph.options.common_update
        self._scale = None if rules.scaling is None else LossScale(rules.scaling)
        self._gates: list[Gate] = []
        """Of the step that is on its way."""
        self._skipped: dict[int, int] = {}
        """Mini-batch whose update was left out -> a stage whose gradients were not finite."""
        self._told = False
        self.log: UpdateLog | None = None
        """Takes every update down, once it is there."""
        self._scale_losses()

    def begin_log(self, *, num_processes: int) -> None:
        """Take updates down from the next step on."""
        if self.log is None:
            self.log = UpdateLog(self._round_sizes, num_processes=num_processes)

    def make_body(self, device: int, action: PlannedAction) -> Body:
        """Return what an action does."""
        crew, plain = self._crew, self._rules == UpdateRules()
        if self._together or (plain and self.log is None) or action.kind is not Kind.UPDATE:
            return crew.body_on(device, action)
        return partial(self._update_plainly if plain else self._update_alone, crew.stage_on(device, action.stage), action)

    def attach(self, devices: Sequence[Sequence[StepTask]], decision: PlannedDecision | None) -> None:
        """Let the updates of one step wait for one verdict on all their gradients, where the graph says that they do."""
        if decision is None:
            return
        # on one device no task of the graph stands for it
        name, deciding = next(self._names) if decision.task == LOCAL else decision.task, decision.devices
        plan = ExchangePlan(name, decision.name, members=deciding, takers=deciding, total=StepVerdict.of_all, plain=True)
        exchange = self._crew.workers.exchange(plan)
        for number, device in enumerate(deciding):
            tasks = [task for task in devices[device] if task.action.kind is Kind.UPDATE]
            if tasks:  # else the device is another process's
                self._gates.append(gate := Gate(exchange.member(number), exchange.taker(number)))
                for task in tasks:
                    self._put_behind(gate, task, device)

    def _put_behind(self, gate: Gate, task: StepTask, device: int) -> None:
        """Let an update take its gradients from behind a gate."""
        stage, clip = self._crew.stage_on(device, task.action.stage), self._rules.clip
        counts, over_model = self._hosts[stage.number][0] == device, clip is not None and clip.over_model
        cell = Cell(gate, stage, task=task, examine=self._examined, counts=counts, over_model=over_model)
        task.waits, task.sources, task.frees = (*task.waits, gate), (cell,), (cell,)
        task.body = partial(self._update, stage, task.action)

    def settle(self) -> None:
        """Let the scale follow a step that is done, and tell of an update that was left out; in the caller's thread."""
        if self._gates and self._scale is not None:
            self._scale.note(made=self._gates[0].take().culprit == NOWHERE)
            self._scale_losses()
        self._gates.clear()
        if self._skipped and not self._told and (self._rules.scaling is None or self._rules.scaling.fixed):
            self._told = True
            self._tell(*next(iter(self._skipped.items())))

    def _tell(self, mini_batch: int, culprit: int) -> None:
        where = "all stages" if self._together else "that stage"
        warnings.warn(
            f"gradients of mini-batch {mini_batch} are not finite on stage {culprit}: its update was left out on {where}; others "
            "like it are left out without a word, and Trainer.skipped_updates lists them",
            SchedirWarning,
            stacklevel=1,
        )

    @property
    def skipped(self) -> tuple[int, ...]:
        """Mini-batches whose update was left out."""
        return tuple(sorted(self._skipped))

    @property
    def loss_scale(self) -> float | None:
        """What losses are multiplied with now; None if they are not."""
        return None if self._scale is None else self._scale.value

    def plain(self) -> dict[str, Any] | None:
        """Return the state of the scale as plain values, for a checkpoint."""
        return None if self._scale is None else self._scale.plain()

    def load(self, plain: Mapping[str, Any] | None) -> None:
        """Go on from what `plain` gave in another training."""
        if self._scale is not None and plain is not None:
            self._scale.load(plain)
            self._scale_losses()

    def _scale_losses(self) -> None:
        self._feed.gradient_scale = 1.0 if self._scale is None else self._scale.value

    # ------------------------------------------------------------ in a device's thread

    def _note(self, stage: StageRuntime, update: int, gradients: Sums) -> None:
        """Take an update down, if anybody asks for that: its gradients without the scale, its rate before the scheduler's step."""
        if self.log is None:
            return
        # update v makes version v of this stretch, of the v-th round of mini-batches
        first = self._feed.first_mini_batch + (update - 1) * self._round_sizes[stage.number]
        rate = stage.weights.learning_rate
        self.log.note(stage.number, first, gradients=stage.updates.counted(gradients), rate=rate)

    def _examined(self, stage: StageRuntime, update: int, gradients: Sums) -> Examined:
        """Return the gradients of a stage's update without the scale, and what is known of them."""
        # squares tell both the norm and whether all are finite; without clipping to look for what is not finite is cheaper
        made = list(gradients) if self._scale is None else unscaled(list(gradients), self._scale.inverse)
        self._note(stage, update, made)
        known = 0.0 if self._rules.clip is None and are_finite(made) else math.nan
        squares = known if self._rules.clip is None else squares_of(stage.updates.counted(made))
        return Examined(made, StepVerdict(squares, NOWHERE if math.isfinite(squares) else stage.number))

    def _update_plainly(self, stage: StageRuntime, action: PlannedAction, *values: Sums) -> None:
        """Make an update that is only taken down."""
        gradients = stage.updates.collect(action.update, *values)
        self._note(stage, action.update, gradients)
        stage.updates.apply(action, gradients)

    def _update_alone(self, stage: StageRuntime, action: PlannedAction, *values: Sums) -> None:
        """Decide on an update by the gradients of its own stage."""
        self._update(stage, action, self._examined(stage, action.update, stage.updates.collect(action.update, *values)))

    def _update(self, stage: StageRuntime, action: PlannedAction, examined: Examined) -> None:
        """Make an update, or leave it out."""
        gradients, (squares, culprit) = examined
        clip = self._rules.clip
        if culprit != NOWHERE and (clip is None or clip.non_finite != NonFinite.APPLY):
            self._leave_out(stage, action, culprit)
        else:
            stage.updates.apply(action, gradients if clip is None else clip.clipped(gradients, squares))

    def _leave_out(self, stage: StageRuntime, action: PlannedAction, culprit: int) -> None:
        feed = self._feed
        mini_batch = feed.first_mini_batch + action.micro_batch // feed.num_micro_batches
        if self._rules.clip is not None and self._rules.clip.non_finite == NonFinite.RAISE:
            raise RunError(
                f"gradients of mini-batch {mini_batch} are not finite on stage {culprit}, so training ended before its update: "
                "lower the learning rate, or look at what the loss of that mini-batch is made of"
            )
        self._skipped[mini_batch] = culprit
        stage.updates.leave_out(action)
