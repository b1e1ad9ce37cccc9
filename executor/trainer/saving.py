"""Checkpoints of a training whose pipeline is empty; of several processes the first writes, and all read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from zlib import crc32

import torch

from executor.checkpoint.checkpoint import Checkpoint, CheckpointMoment, load_checkpoint, save_checkpoint
from executor.checkpoint.files import MANIFEST
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


def check_same(engine: Engine, found: Checkpoint | None) -> None:
    """Raise ArgumentError if another process goes on from another checkpoint, or begins anew (None)."""
    # a checkpoint's manifest has checksums of everything in it
    own = (-1, 0) if found is None else (found.mini_batch, crc32((found.path / MANIFEST).read_bytes()))
    begins = engine.team.of_all("beginning", own)
    for number, begin in enumerate(begins):
        if begin != begins[0]:
            another = "another" if begin[0] == begins[0][0] else "a"
            first, other = _beginning(begins[0][0], "a"), _beginning(begin[0], another)
            raise ArgumentError(
                f"process {number} {other}, but process 0 {first}: let all processes read the same one; hosts that share no disk "
                "need a copy each"
            )


def _beginning(mini_batch: int, article: str) -> str:
    return f"goes on from {article} checkpoint after {mini_batch} mini-batches" if mini_batch >= 0 else "begins anew"
