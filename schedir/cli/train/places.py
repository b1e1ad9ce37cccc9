"""Where a training begins, and how to go on where it ended: the words of a command line about checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from schedir.cli.screen.screen import counted
from schedir.cli.train.options import TrainOptions, TrainOutput
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.workflows.training.train_log import TrainLog

AUTO = "auto"
"""In the place of CHECKPOINT: the newest in --out if there is one, else none."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is trained by, and from where on."""

    schedule: str | None
    """None: a plan says it."""
    checkpoint: Path | None
    """A checkpoint, or a folder of them; None: from the start."""


def beginning(schedule: str | None, checkpoint: Path | None, *, training: TrainOptions, output: TrainOutput) -> Beginning:
    """Tell schedule and checkpoint apart, and raise ArgumentError where a training would write over another one's.

    With a plan the only word may be the checkpoint, and `auto` may stand before the schedule or behind it.
    """
    if not output.resume:
        if checkpoint is not None:
            raise ArgumentError(f"CHECKPOINT {checkpoint} is given, but not --resume: give both or none")
        _refuse_to_mix(output, None)
        return Beginning(schedule, None)
    words = [str(word) for word in (schedule, checkpoint) if word is not None]
    if AUTO in words:
        return _newest_if_any([word for word in words if word != AUTO], output)
    _refuse_own(training)
    if checkpoint is None and schedule is not None and Path(schedule).is_dir():
        begin = Beginning(None, Path(schedule))
    else:
        _refuse_nothing(output, checkpoint)
        begin = Beginning(schedule, checkpoint or output.checkpoints)
    _refuse_to_mix(output, begin.checkpoint)
    return begin


def _refuse_nothing(output: TrainOutput, checkpoint: Path | None) -> None:
    """Raise ArgumentError if no checkpoint is named, and none was saved where they go."""
    from executor.checkpoint.folder import has_checkpoints

    if checkpoint is None and not has_checkpoints(output.checkpoints):
        raise ArgumentError(
            f"--resume: nothing was saved in {output.checkpoints}: leave it out to begin anew, or give --resume auto, which begins "
            "where nothing was saved"
        )


def _newest_if_any(words: list[str], output: TrainOutput) -> Beginning:
    from executor.checkpoint.folder import has_checkpoints

    if len(words) > 1:
        raise ArgumentError(
            f"--resume auto takes the newest checkpoint in --out, but {words[1]} is given too: leave one of them out"
        )
    newest = output.checkpoints if has_checkpoints(output.checkpoints) else None
    return Beginning(words[0] if words else None, newest)


def _refuse_own(training: TrainOptions) -> None:
    for name in ("seed", "lr"):
        if getattr(training, name) is not None:
            raise ArgumentError(f"--{name}: a training that is resumed has its own: leave it out")


def _refuse_to_mix(output: TrainOutput, resume: Path | None) -> None:
    """Raise ArgumentError if --out holds a training, and it is not the one to go on with."""
    from executor.checkpoint.folder import find_checkpoint, has_checkpoints

    if not has_checkpoints(output.checkpoints):
        return
    if resume is None:
        raise ArgumentError(
            f"{output.checkpoints} holds checkpoints: give --resume to go on from them, or another folder: "
            f"--out {_free(output.folder)}"
        )
    source = find_checkpoint(resume)
    if source.parent.resolve() != output.checkpoints.resolve():
        raise ArgumentError(
            f"{output.checkpoints} holds checkpoints of a training that does not go on from {source}: leave that out to go on from "
            f"them, or give another folder: --out {_free(output.folder)}"
        )


def _free(folder: Path) -> Path:
    """Return a folder beside this one that is not there yet."""
    return next(place for number in count(2) if not (place := folder.with_name(f"{folder.name}-{number}")).exists())


def way_on(log: TrainLog, checkpoint_every: int | None) -> str:
    """Return one line about a training that has not come to its end: what there is of it, and how to go on.

    Where nothing was saved it says why, so that nobody is advised to do what has failed just now.
    """
    from schedir.workflows.training.train_log import LOSSES

    if not log.num_trained:
        return ""
    told = f"stopped after {counted(log.losses[-1].mini_batch + 1, 'mini-batch')}, their losses are in {log.path(LOSSES)}"
    if log.checkpoint is None:
        return f"{told}: {_nothing_saved(log, checkpoint_every)}"
    return f"{told}: go on with --resume {log.checkpoint} (after {log.saved_at})"


def _nothing_saved(log: TrainLog, checkpoint_every: int | None) -> str:
    if log.is_saving:
        return "there is no checkpoint to go on from, since the first was not written to its end"
    if checkpoint_every is not None:
        return f"there is no checkpoint to go on from, since the first would have come after {checkpoint_every}"
    return "nothing was saved to go on from: --checkpoint-every N saves every N mini-batches"
