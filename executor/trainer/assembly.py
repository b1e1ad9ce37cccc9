"""Put a training together: a model, a schedule and how it is conducted, if the three fit."""

from __future__ import annotations

from functools import partial

import torch

from executor.model.pipeline import Pipeline
from executor.plan.endless import Endless
from executor.trainer.conduct import Conduct
from executor.trainer.engine import Engine
from executor.trainer.program_source import ScheduleChoice
from executor.trainer.updating.clipping import Clip
from executor.trainer.updating.loss_scaling import check_scaling
from executor.workers.choice import fitted, make_team
from schedir.errors import RefusedError
from schedir.ir.program import Program


def assemble(pipeline: Pipeline, choice: ScheduleChoice, conduct: Conduct) -> Engine:
    """Return what trains, with workers that are ready; raise ArgumentError or RefusedError for what does not fit together."""
    endless = choice.endless(
        fit=partial(fitted, kind=conduct.workers, stepwise=True),
        # asked as under a flush, for nobody has built the program yet: one without has no common update, and ignores it
        common_update=conduct.rules.together(synchronous=True),
    )
    program, rules = endless.table.graph.program, conduct.rules
    _check_clip(rules.clip, program, pipeline.ties)
    check_scaling(rules.scaling, program, pipeline.stages)
    # before any module is touched: an open training may be computing with it
    claim = pipeline.claim(by=f"an open Trainer of {program.name}: close it")
    try:
        # whatever the caller's thread is in: parameters made in inference mode can never be trained
        with torch.inference_mode(mode=False):
            engine = _engine(endless, pipeline, conduct)
    except BaseException:
        claim.release()
        raise
    engine.claim = claim
    return engine


def _engine(endless: Endless, pipeline: Pipeline, conduct: Conduct) -> Engine:
    """Return the engine; where it cannot be made, no other process waits for this one."""
    team = make_team(conduct.workers, endless.table.graph, pipeline, seed=conduct.seed, timeout_s=conduct.timeout_s)
    try:
        return Engine(endless, pipeline, conduct, team=team)
    except BaseException as error:
        if (shown := team.failed(error)) is error:
            raise
        raise shown from None


def _check_clip(clip: Clip | None, program: Program, ties: tuple[tuple[int, ...], ...]) -> None:
    if clip is not None and not clip.over_model and ties:
        raise RefusedError(
            f"stages {', '.join(map(str, ties[0]))} hold the same weights, which clipping by the norm of each stage would change "
            'differently: give clip=Clip(…, per="model")'
        )
    if clip is not None and clip.over_model and not program.weights.synchronous:
        raise RefusedError(
            f"{program.name} never has the gradients of all stages at one moment, so they have no common norm to clip by: give "
            'clip=Clip(…, per="stage"), or use a schedule that flushes'
        )
