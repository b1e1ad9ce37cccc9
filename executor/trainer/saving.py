"""Checkpoints of a training whose pipeline is empty; of several processes the first writes, and all read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch

from executor.checkpoint.checkpoint import Checkpoint, CheckpointMoment, load_checkpoint, save_checkpoint
from executor.checkpoint.folder import remove_older
from executor.trainer.engine import Engine
from schedir.errors import ArgumentError


def save(engine: Engine, folder: Path, moment: CheckpointMoment, *, keep_last: int | None, staying: Collection[int] = ()) -> Path:
    """Write a checkpoint; return its folder, on all processes when it is there. Raises RunError where it cannot be written.

    `keep_last`: how many stay, the new one among them; None: all. `staying`: numbers of further ones.
    """

    def written() -> Path:
        made = save_checkpoint(folder, engine.pipeline, moment)
        if keep_last is not None:
            remove_older(made, keep_last, staying=staying)
        return made

    # before: the first process writes the stages of all
    engine.team.share_state()
    return engine.team.by_first("checkpoint", written)


def load(engine: Engine, path: Path) -> Checkpoint:
    """Go on from a checkpoint; raise FormatError, with nothing changed, for what is none of this model and optimizer."""
    with torch.inference_mode(mode=False):
        found = load_checkpoint(path, engine.pipeline)
        engine.go_on_from(found.mini_batch, found.seed)
        engine.updates.load(found.loss_scale)
    return found


def check_same(engine: Engine, mini_batch: int) -> None:
    """Raise ArgumentError if another process goes on from another mini-batch."""
    loaded = engine.team.of_all("load", mini_batch)
    if len(set(loaded)) > 1:
        raise ArgumentError(f"the processes loaded checkpoints after {loaded} mini-batches: give all of them the same one")
