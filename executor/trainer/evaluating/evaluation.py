"""Evaluate a model in its stages between two steps of training, without a trace in the training.

Forwards go through the devices like those of training: every device computes its stages with their newest true weights, micro-batch
after micro-batch, so devices work at the same time. Modes, buffers and random numbers are afterwards what they were, and devices
are ready for the next step, also where the evaluation failed (`executor.trainer.evaluating.judging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from executor.global_random import same_random
from executor.model.data import LossReduction, MicroBatch, cut
from executor.plan.actions import PlannedAction
from executor.run.placing import placed
from executor.run.runner import PartSink
from executor.trainer.engine import Engine
from executor.trainer.evaluating.evaluated_stage import EvaluatedStage
from executor.trainer.evaluating.judging import EvaluatedPart, MetricFunction, Result, Tally
from executor.trainer.step_binder import StepTask
from executor.workers.base import Port
from executor.workers.ports import LocalSlot
from schedir.errors import ArgumentError
from schedir.ir.action import Direction, Kind


@dataclass(slots=True)
class _Sums:
    """Weighted sums over all micro-batches so far."""

    loss: float = 0.0
    loss_weight: float = 0.0
    samples: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


def evaluate(engine: Engine, data: Iterable[object], metrics: Mapping[str, MetricFunction]) -> dict[str, float]:
    """Return the mean loss and the means of the metrics; with loss_reduction "sum" the loss is the sum over all data.

    Every device must be idle. Raises ArgumentError for data that are none, or the first error of data, stage, loss or metric.
    """
    sums = _Sums(metrics=dict.fromkeys(metrics, 0.0))
    with _untouched(engine):
        stages = _stages(engine)
        for mini_batch in data:
            _add(sums, engine, stages, mini_batch=mini_batch, metrics=metrics)
    if not sums.samples:
        raise ArgumentError("there are no mini-batches to evaluate on: give at least one (input, target)")
    return {
        "loss": sums.loss / sums.loss_weight if sums.loss_weight else 0.0,
        **{name: total / sums.samples for name, total in sums.metrics.items()},
    }


def _add(
    sums: _Sums, engine: Engine, stages: Sequence[_AnyStage], *, mini_batch: object, metrics: Mapping[str, MetricFunction]
) -> None:
    pipeline = engine.pipeline
    ends = stages[0].device, stages[-1].device
    whole = _cut(mini_batch, engine)
    parts = placed(whole, [ends] * len(whole), engine.workers)
    weights = pipeline.loss_weights([part.target for part in parts])
    added = pipeline.loss_reduction is LossReduction.SUM
    for part, weight, result in zip(parts, weights, _forwards(engine, stages, parts, metrics=metrics), strict=True):
        sums.samples += part.samples
        for name, value in result.metrics.items():
            sums.metrics[name] += value * part.samples
        if added:
            sums.loss, sums.loss_weight = sums.loss + result.loss, 1.0
        elif weight:
            sums.loss, sums.loss_weight = sums.loss + result.loss * weight, sums.loss_weight + weight


def _cut(mini_batch: object, engine: Engine) -> list[MicroBatch]:
    """Cut a mini-batch as training does, or into single samples if it has fewer than there are micro-batches."""
    most = engine.graph.program.num_micro_batches
    whole = cut(mini_batch, 1, engine.pipeline.loss_scales)[0]
    return cut(mini_batch, min(most, whole.samples), engine.pipeline.loss_scales)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """A stage that another process computes."""

    device: int
    number: int


_AnyStage = EvaluatedStage | _Elsewhere


def _stages(engine: Engine) -> list[_AnyStage]:
    hosts, last = engine.graph.stage_devices(), len(engine.pipeline.stages) - 1
    return [
        _Elsewhere(devices[0], stage)
        if devices[0] not in engine.workers.devices
        else EvaluatedStage(
            engine.crew.stage_on(devices[0], stage),
            engine.pipeline.copy(stage, 0).module,
            engine.feed,
            device=devices[0],
            is_last=stage == last,
        )
        for stage, devices in enumerate(hosts)
    ]


def _forwards(
    engine: Engine, stages: Sequence[_AnyStage], parts: Sequence[MicroBatch], *, metrics: Mapping[str, MetricFunction]
) -> list[Result]:
    """Run all micro-batches through all stages; return their results in order."""
    judge = Tally(metrics)
    tasks: list[list[StepTask]] = [[] for _ in range(engine.graph.program.num_devices)]
    for piece in (EvaluatedPart(number, part) for number, part in enumerate(parts)):
        arriving: dict[int, list[Port | None]] = {}
        for stage in stages:
            sources = tuple(port for port in arriving.pop(stage.number, ()) if port is not None)
            leaving = _ports(engine, stages, stage, number=piece.number, arriving=arriving)
            # taken for stages of other processes, too: a name must mean the same in all of them
            index = next(engine.unrecorded)
            if isinstance(stage, _Elsewhere):
                continue
            body = stage.forward if leaving else stage.judge
            ports = [port for port in leaving if port is not None]
            task = StepTask(
                index=index,
                waits=(),
                sources=sources,
                body=partial(body, judge, piece),
                sinks=tuple(ports) if len(ports) < 2 else tuple(PartSink(port, part) for part, port in enumerate(ports)),
                frees=sources,
                action=_action(stage.number, piece.number),
                label=f"the evaluation of stage {stage.number}, micro-batch {piece.number}",
            )
            tasks[stage.device].append(task)
    engine.stream.wait(engine.stream.give(tasks))
    # nobody asks when an evaluation ended, but the stream keeps it until somebody takes it
    engine.stream.take_end(engine.stream.num_given - 1)
    results = judge.results_of_all(engine.team)
    return [results[number] for number in range(len(parts))]


def _ports(
    engine: Engine, stages: Sequence[_AnyStage], stage: _AnyStage, *, number: int, arriving: dict[int, list[Port | None]]
) -> list[Port | None]:
    """Return the ports of what a stage sends, to its neighbour and then over skip connections, and add them where they arrive."""
    targets = [stage.number + 1] if stage.number + 1 < len(stages) else []
    targets += [target for source, target in engine.pipeline.skips if source == stage.number]
    found = []
    for target in targets:
        port = _port(engine, stage, stages[target], number=number)
        place = arriving.setdefault(target, [])
        place.insert(0 if target == stage.number + 1 else len(place), port)
        found.append(port)
    return found


def _port(engine: Engine, stage: _AnyStage, following: _AnyStage, *, number: int) -> Port | None:
    """Return the port between two stages, None if both are in other processes."""
    task, ends = next(engine.unrecorded), (stage.device, following.device)
    if not set(ends) & set(engine.workers.devices):
        return None
    if stage.device == following.device:
        return LocalSlot()
    name = f"the output of stage {stage.number} for micro-batch {number} of an evaluation"
    return engine.workers.channel(task, name, ends=ends)


def _action(stage: int, number: int) -> PlannedAction:
    return PlannedAction(-1, Kind.FORWARD, stage, number, 0, 0, -1, Direction.FORWARD)


@contextmanager
def _untouched(engine: Engine) -> Iterator[None]:
    """Leave modes, buffers and random numbers as they are; inside, modules are in eval mode."""
    modes = {module: module.training for stage in engine.pipeline.stages for module in stage.modules()}
    with ExitStack() as kept:
        kept.enter_context(same_random())
        for stage in engine.crew.stages():
            kept.enter_context(stage.buffers.untouched())
        try:
            for module in engine.pipeline.stages:
                module.eval()
            yield
        finally:
            _set_modes(modes)
            # the forwards have bound sets of their own, where users look for the optimizer's parameters
            engine.show_newest()


def _set_modes(modes: Mapping[nn.Module, bool]) -> None:
    """Set modes by train(), of which layers may have their own: LoRA's takes its product out of the weight again."""
    # parents come first, so what they set of a layer that its user has frozen in eval mode is set back
    for module, mode in modes.items():
        if module.training != mode:
            module.train(mode)
