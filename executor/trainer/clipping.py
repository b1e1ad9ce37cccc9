"""Clip gradients by their norm, over the whole model or stage by stage, and leave out updates that are not finite.

    over the model   every device: squares of its stages' gradients ──▶ sum over devices ──▶ one factor for all updates
    per stage        each update by the norm of its own stage; the only way without a flush, where no moment has all gradients

The factor is max_norm / (norm + 1e-6), at most 1, as `torch.nn.utils.clip_grad_norm_` has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from executor.plan.plan import PlannedAction
from executor.run.crew import TrainingCrew
from executor.run.runner import Body
from executor.stage.stage import StageRuntime
from executor.workers.base import ExchangePlan, Sink, Source
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.ir.expect import expect

if TYPE_CHECKING:
    from executor.trainer.engine import Engine
    from executor.trainer.step_binder import StepTask

Sums = Sequence[Tensor | None]
"""Gradients of one stage's update, by parameter."""
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Clip:
    """How gradients are clipped before an update."""

    max_norm: float = math.inf
    """Largest Euclidean norm; infinite: none is clipped."""
    per: str = "model"
    """What the norm is taken over: model or stage."""
    skip_non_finite: bool = False
    """An update whose norm is not finite is left out, on all stages alike; otherwise it is made, as torch does."""

    def __post_init__(self) -> None:
        expect(self.max_norm, (int, float), "clip: max_norm", remedy="give a number above 0")
        if not self.max_norm > 0:
            raise ArgumentError(f"clip: max_norm {self.max_norm!r} is no norm: give a number above 0")
        if self.per not in {"model", "stage"}:
            raise ArgumentError(f"clip: per {self.per!r} is unknown: use model or stage")

    @classmethod
    def of(cls, clip: Clip | float | None) -> Clip | None:
        """Return what a number (the norm over the model) stands for."""
        return clip if clip is None or isinstance(clip, Clip) else cls(clip)

    @property
    def over_model(self) -> bool:
        """The norm is that of all stages' gradients together."""
        return self.per == "model"

    def applied(self, gradients: Sums, squares: float) -> list[Tensor | None]:
        """Return the gradients to update with, given the sum of squares that decides; nothing for an update that is left out."""
        if self.skip_non_finite and not math.isfinite(squares):
            return [None] * len(gradients)
        factor = self.max_norm / (math.sqrt(squares) + EPSILON) if not math.isnan(squares) else math.nan
        if factor >= 1:
            return list(gradients)
        return [None if gradient is None else gradient * factor for gradient in gradients]


def squares_of(gradients: Sums) -> float:
    """Return the sum of squares of all gradients."""
    found = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients if gradient is not None]
    if not found:
        return 0.0
    norms = torch.stack([norm.double() for norm in torch._foreach_norm(found)])
    return float((norms * norms).sum())


def clipped_updates(crew: TrainingCrew, clip: Clip | None) -> Callable[[int, PlannedAction], Body]:
    """Return what gives actions their work: updates clipped by their own stage's norm if that is asked for."""
    if clip is None or clip.over_model:
        return crew.body_on

    def make_body(device: int, action: PlannedAction) -> Body:
        if action.kind is not Kind.UPDATE:
            return crew.body_on(device, action)
        return partial(_update_alone, clip, crew.stage_on(device, action.stage), action)

    return make_body


def _update_alone(clip: Clip, stage: StageRuntime, action: PlannedAction, *values: Sums) -> None:
    gradients = values[0] if values else stage.sums.take(action.update)
    stage.update(action, clip.applied(gradients, squares_of(gradients)))


class ModelClip:
    """Clips over the model: puts a gate before the updates of every device, which stand behind all its gradients."""

    def __init__(self, clip: Clip, engine: Engine) -> None:
        self._clip, self._engine = clip, engine
        hosts = engine.graph.stage_devices()
        self._counts = {(devices[0], stage) for stage, devices in enumerate(hosts)}
        """(device, stage) whose gradients count: one of the replicas, which all have the same."""

    def attach(self, devices: Sequence[Sequence[StepTask]], updating: tuple[int, ...]) -> None:
        """Let the updates of one step wait for the norm over all their gradients; `updating` are the devices that have some."""
        name = next(self._engine.unrecorded)
        plan = ExchangePlan(name, "the norm over all gradients", members=updating, takers=updating, total=sum)
        exchange = self._engine.workers.exchange(plan)
        for number, device in enumerate(updating):
            tasks = [task for task in devices[device] if task.action.kind is Kind.UPDATE]
            if not tasks:  # in another process
                continue
            gate = _Gate(self._clip, exchange.member(number), exchange.taker(number))
            for task in tasks:
                stage = self._engine.crew.stage_on(device, task.action.stage)
                cell = _Cell(gate, stage, task, counts=(device, stage.number) in self._counts)
                gate.cells.append(cell)
                task.waits, task.sources, task.frees = (*task.waits, gate), (cell,), (cell,)


class _Gate:
    """What the updates of one device wait for: the sum of squares over all devices."""

    def __init__(self, clip: Clip, sink: Sink, source: Source) -> None:
        self.clip = clip
        self.cells: list[_Cell] = []
        self.squares: float | None = None
        self._sink, self._source = sink, source

    def wait(self) -> None:
        """Hand in this device's squares, and return when those of all devices are there."""
        if self.squares is None:
            self._sink.put(sum(cell.collect() for cell in self.cells))
            self.squares = float(self._source.take())

    def free(self) -> None:
        """Do nothing: a number is in nobody's memory."""

    def take(self) -> float:
        """Return the sum of squares."""
        self.wait()
        assert self.squares is not None
        return self.squares


class _Cell:
    """The gradients of one update behind the gate."""

    def __init__(self, gate: _Gate, stage: StageRuntime, task: StepTask, *, counts: bool) -> None:
        self._gate, self._stage, self._counts = gate, stage, counts
        self._reduced, self._update = task.sources, task.action.update
        self._gradients: Sums = ()

    def collect(self) -> float:
        """Take the gradients, those of all replicas if there are several; return the squares that count."""
        self._gradients = self._reduced[0].take() if self._reduced else self._stage.sums.take(self._update)
        return squares_of(self._gradients) if self._counts else 0.0

    def wait(self) -> None:
        """Return at once: the gate was waited for."""

    def free(self) -> None:
        """Let go of what was reduced."""
        for source in self._reduced:
            source.free()

    def take(self) -> Sums:
        """Return the gradients to update with."""
        gradients, self._gradients = self._gradients, ()
        return self._gate.clip.applied(gradients, self._gate.take())
