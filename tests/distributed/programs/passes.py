"""Passes between which processes do not wait for each other, called by name in processes of their own."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from executor.training import train
from executor.workers.distributed.messages import lanes
from tests.distributed.programs.work import TIMEOUT_S
from tests.executor.small.models import batches, compiled, mlp, pipeline_of


@dataclass
class Passes:
    """What one process knows of a run of many passes."""

    losses: list[float]
    weights: dict[str, Tensor]
    whole: list[bool]
    """By pass: every task was recorded."""
    starts: list[float]
    """By pass: when its first task began, in seconds behind its own first; 0 in a whole one."""
    abouts: list[tuple[int, int, bool]]
    """By pass: its number, its first mini-batch, and whether it is the warm-up."""
    sent: dict[str, int]
    """Messages of this process, by what they are: values of tasks, or words."""


def many_passes(count: int, workers: str, *, timeout: float = TIMEOUT_S) -> Passes:
    """Train `count` passes over 1f1b, and count messages."""
    sent: Counter[str] = Counter()
    send: Any = lanes.Outgoing.send

    def counted(lane: lanes.Outgoing, key: lanes.Key, value: object, **options: Any) -> None:
        sent["values" if key[0] >= 0 else "words"] += 1
        send(lane, key, value, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes.Outgoing, "send", counted)
        run = train(compiled("1f1b", 2, 2), pipeline_of(mlp(2)), batches(count), workers=workers, timeout=timeout)
    metas = [timeline.meta for timeline in run.timelines]
    return Passes(
        losses=run.losses,
        weights=dict(run.state_dict()),
        whole=[bool(timeline.recorded.all()) for timeline in run.timelines],
        starts=[float(timeline.start.min()) for timeline in run.timelines],
        abouts=[(meta["pass"], meta["first_mini_batch"], meta["warm_up"]) for meta in metas],
        sent=dict(sent),
    )


def everything(counts: tuple[int, ...]) -> dict[int, Passes]:
    return {count: many_passes(count, "distributed") for count in counts}
