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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from executor.plan.actions import PlannedAction
from executor.plan.decisions import PlannedDecision
from executor.plan.local import LOCAL
from executor.run.runner import Body
from executor.stage.stage import StageRuntime
from executor.trainer.updating.clipping import Clip, NonFinite, Sums, are_finite, squares_of
from executor.trainer.updating.loss_scaling import LossScale, LossScaling, unscaled
from executor.trainer.updating.update_log import UpdateLog
from executor.workers.base import ExchangePlan, Sink, ValueSource
from schedir.errors import ArgumentError, RunError, SchedirWarning
from schedir.ir.action import Kind

if TYPE_CHECKING:
    from executor.trainer.engine import Engine
    from executor.trainer.step_binder import StepTask

NOWHERE = -1
"""Stands for the stage whose gradients are not finite, where all are."""


@dataclass(frozen=True, slots=True)
class UpdateRules:
    """What a training asks for."""

    clip: Clip | None = None
    scaling: LossScaling | None = None

    def __post_init__(self) -> None:
        if self.scaling is not None and self.clip is not None and self.clip.non_finite != NonFinite.SKIP:
            raise ArgumentError(
                f"clip: non_finite {str(self.clip.non_finite)!r} is against loss_scaling, which leaves such updates out: give one "
                "of the two"
            )

    def together(self, *, synchronous: bool) -> bool:
        """Tell whether one verdict decides on the updates of all stages."""
        return (self.clip is not None and self.clip.over_model) or (self.scaling is not None and synchronous)


class StepVerdict(NamedTuple):
    """What is known of some gradients."""

    squares: float
    """Sum of the squares of all; not finite if one of them is not."""
    culprit: int
    """First stage whose gradients are not finite, or NOWHERE."""

    @classmethod
    def of_all(cls, verdicts: Sequence[StepVerdict]) -> StepVerdict:
        """Return what is known of all gradients, given what is of each part."""
        culprits = [verdict.culprit for verdict in verdicts if verdict.culprit != NOWHERE]
        return cls(sum(verdict.squares for verdict in verdicts), min(culprits, default=NOWHERE))


class StepUpdates:
    """The updates of one training."""

    def __init__(self, rules: UpdateRules, engine: Engine) -> None:
        self._rules, self._engine = rules, engine
        self._together = rules.together(synchronous=engine.synchronous)
        # the graph has the edges that the verdict needs: what waits in training waits in predictions too
        assert self._together == engine.graph.options.common_update
        self._scale = None if rules.scaling is None else LossScale(rules.scaling)
        self._gates: list[_Gate] = []
        """Of the step that is on its way."""
        self._skipped: dict[int, int] = {}
        """Mini-batch whose update was left out -> a stage whose gradients were not finite."""
        self._told = False
        self.log: UpdateLog | None = None
        """Takes every update down, once it is there."""
        self._scale_losses()

    def begin_log(self) -> None:
        """Take updates down from the next step on."""
        if self.log is None:
            engine = self._engine
            self.log = UpdateLog(engine.graph.round_size.tolist(), num_processes=engine.team.num_processes)

    def make_body(self, device: int, action: PlannedAction) -> Body:
        """Return what an action does."""
        crew, plain = self._engine.crew, self._rules == UpdateRules()
        if self._together or (plain and self.log is None) or action.kind is not Kind.UPDATE:
            return crew.body_on(device, action)
        return partial(self._update_plainly if plain else self._update_alone, crew.stage_on(device, action.stage), action)

    def attach(self, devices: Sequence[Sequence[StepTask]], decision: PlannedDecision | None) -> None:
        """Let the updates of one step wait for one verdict on all their gradients, where the graph says that they do."""
        if decision is None:
            return
        engine = self._engine
        # on one device no task of the graph stands for it
        name, deciding = next(engine.unrecorded) if decision.task == LOCAL else decision.task, decision.devices
        plan = ExchangePlan(name, decision.name, members=deciding, takers=deciding, total=StepVerdict.of_all, plain=True)
        exchange = engine.workers.exchange(plan)
        hosts = engine.graph.stage_devices()
        #   update on device 0 ── gradients looked at ──▶ gate ─┐
        #   update on device 1 ── gradients looked at ──▶ gate ─┴─▶ one verdict ──▶ both update, or both leave it out
        for number, device in enumerate(deciding):
            tasks = [task for task in devices[device] if task.action.kind is Kind.UPDATE]
            if not tasks:  # in another process
                continue
            gate = _Gate(exchange.member(number), exchange.taker(number))
            self._gates.append(gate)
            for task in tasks:
                stage = engine.crew.stage_on(device, task.action.stage)
                cell = _Cell(self, gate, stage, task=task, counts=hosts[stage.number][0] == device)
                gate.cells.append(cell)
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
        self._engine.feed.gradient_scale = 1.0 if self._scale is None else self._scale.value

    # ------------------------------------------------------------ in a device's thread

    def _note(self, stage: StageRuntime, update: int, gradients: Sums) -> None:
        """Take an update down, if anybody asks for that: its gradients without the scale, its rate before the scheduler's step."""
        if self.log is None:
            return
        feed, size = self._engine.feed, int(self._engine.graph.round_size[stage.number])
        # update v makes version v of this stretch, of the v-th round of mini-batches
        first, rate = feed.first_mini_batch + (update - 1) * size, stage.weights.learning_rate
        self.log.note(stage.number, first, gradients=stage.updates.counted(gradients), rate=rate)

    def examined(self, gradients: Sums, stage: StageRuntime, update: int) -> tuple[list[Tensor | None], StepVerdict]:
        """Return the gradients of a stage's update without the scale, and what is known of them."""
        # squares tell both the norm and whether all are finite; without clipping to look for what is not finite is cheaper
        made = list(gradients) if self._scale is None else unscaled(list(gradients), self._scale.inverse)
        self._note(stage, update, made)
        known = 0.0 if self._rules.clip is None and are_finite(made) else math.nan
        squares = known if self._rules.clip is None else squares_of(stage.updates.counted(made))
        return made, StepVerdict(squares, NOWHERE if math.isfinite(squares) else stage.number)

    def _update_plainly(self, stage: StageRuntime, action: PlannedAction, *values: Sums) -> None:
        """Make an update that is only taken down."""
        gradients = stage.updates.collect(action.update, *values)
        self._note(stage, action.update, gradients)
        stage.updates.apply(action, gradients)

    def _update_alone(self, stage: StageRuntime, action: PlannedAction, *values: Sums) -> None:
        gradients, verdict = self.examined(stage.updates.collect(action.update, *values), stage, action.update)
        self._update(stage, action, (gradients, verdict.squares, verdict.culprit))

    def _update(self, stage: StageRuntime, action: PlannedAction, examined: Examined) -> None:
        """Make an update, or leave it out."""
        gradients, squares, culprit = examined
        clip = self._rules.clip
        if culprit != NOWHERE and (clip is None or clip.non_finite != NonFinite.APPLY):
            self._leave_out(stage, action, culprit)
        else:
            stage.updates.apply(action, gradients if clip is None else clip.clipped(gradients, squares))

    def _leave_out(self, stage: StageRuntime, action: PlannedAction, culprit: int) -> None:
        feed = self._engine.feed
        mini_batch = feed.first_mini_batch + action.micro_batch // feed.num_micro_batches
        if self._rules.clip is not None and self._rules.clip.non_finite == NonFinite.RAISE:
            raise RunError(
                f"gradients of mini-batch {mini_batch} are not finite on stage {culprit}, so training ended before its update: "
                "lower the learning rate, or look at what the loss of that mini-batch is made of"
            )
        self._skipped[mini_batch] = culprit
        stage.updates.leave_out(action)

    def clips_over_model(self) -> bool:
        """Tell whether the norm to clip by is that of all stages."""
        return self._rules.clip is not None and self._rules.clip.over_model


Examined = tuple[list[Tensor | None], float, int]
"""(gradients without the scale, sum of the squares that decide, stage that is not finite or NOWHERE)."""


class _Gate:
    """What the updates of one device wait for: the verdict on the gradients of all devices."""

    def __init__(self, sink: Sink, source: ValueSource) -> None:
        self.cells: list[_Cell] = []
        self._verdict: StepVerdict | None = None
        self._sink, self._source = sink, source

    def wait(self) -> None:
        """Hand in what is known of this device's gradients, and return when that of all devices is there."""
        if self._verdict is None:
            self._sink.put(StepVerdict.of_all([cell.collect() for cell in self.cells]))
            self._verdict = self._source.take()

    def free(self) -> None:
        """Do nothing: a verdict is in nobody's memory."""

    def take(self) -> StepVerdict:
        """Return the verdict."""
        self.wait()
        assert self._verdict is not None
        return self._verdict


class _Cell:
    """The gradients of one update behind the gate."""

    def __init__(self, updates: StepUpdates, gate: _Gate, stage: StageRuntime, *, task: StepTask, counts: bool) -> None:
        """Take the stage's update; `counts` on one of its replicas, which all have the same gradients."""
        self._updates, self._gate, self._stage, self._counts = updates, gate, stage, counts
        self._reduced, self._update = task.sources, task.action.update
        self._gradients: list[Tensor | None] = []
        self._own = StepVerdict(0.0, NOWHERE)

    def collect(self) -> StepVerdict:
        """Take the gradients, those of all replicas if there are several; return what counts."""
        given = self._stage.updates.collect(self._update, *(source.take() for source in self._reduced))
        self._gradients, self._own = self._updates.examined(given, self._stage, self._update)
        return self._own if self._counts else StepVerdict(0.0, self._own.culprit)

    def wait(self) -> None:
        """Return at once: the gate was waited for."""

    def free(self) -> None:
        """Let go of what was reduced."""
        for source in self._reduced:
            source.free()

    def take(self) -> Examined:
        """Return the gradients to update with, and what decides."""
        gradients, self._gradients = self._gradients, []
        verdict = self._gate.take()
        squares = verdict.squares if self._updates.clips_over_model() else self._own.squares
        return gradients, squares, verdict.culprit
