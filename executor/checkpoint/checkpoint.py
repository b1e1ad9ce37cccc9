"""Save a training and go on from it: bit for bit on the CPU, with another cut and another schedule if wanted.

A checkpoint is of a moment when the pipeline is empty: a continuous schedule drains before. It holds weights and buffers, what
optimizers, schedulers and predictions know, the random numbers of the process and the trainer's seed, and what the caller says
about the place in the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from executor.checkpoint.files import read_manifest, read_tensors
from executor.checkpoint.folder import find_checkpoint, write_checkpoint
from executor.checkpoint.plain_values import from_json, to_json
from executor.checkpoint.state import read_state, write_state
from executor.checkpoint.training_state import TrainingState
from executor.global_random import GlobalRandom
from executor.model.pipeline import Pipeline
from schedir.errors import FormatError
from schedir.ir.program import Program

MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint says of itself."""

    path: Path
    mini_batch: int
    """How many mini-batches were trained on."""
    schedule: str
    seed: int
    data: Mapping[str, Any]
    """What the caller of `save` said about the place in the data."""
    random: GlobalRandom = field(repr=False)  # thousands of numbers, which say nothing to a reader
    """The random numbers of the process when it was saved."""
    loss_scale: Mapping[str, Any] | None
    """State of the loss scale, None if there was none."""


@dataclass(frozen=True, slots=True)
class CheckpointMoment:
    """What a checkpoint is of, beside the pipeline."""

    program: Program
    mini_batch: int
    seed: int
    plan: str | None
    data: Mapping[str, Any]
    loss_scale: Mapping[str, Any] | None


def save_checkpoint(folder: Path, pipeline: Pipeline, moment: CheckpointMoment) -> Path:
    """Write a checkpoint of a drained pipeline and return its folder; raise RefusedError, RunError."""
    program, (model, optimizer, plain) = moment.program, read_state(pipeline)
    facts = {
        "mini_batch": moment.mini_batch,
        "schedule": {
            "name": program.name,
            "num_stages": program.num_stages,
            "num_devices": program.num_devices,
            "num_micro_batches": program.num_micro_batches,
        },
        "plan": moment.plan,
        "weights": str(program.weights),
        "drained": True,
        "seed": moment.seed,
        "rng": to_json(GlobalRandom.current().plain(), "the random numbers"),
        "data": to_json(dict(moment.data), "the place in the data"),
        "loss_scale": moment.loss_scale,
        "optimizer": plain,
    }
    return write_checkpoint(folder, facts, {MODEL: model, OPTIMIZER: optimizer})


def load_checkpoint(path: Path, pipeline: Pipeline) -> Checkpoint:
    """Give a pipeline the state of a checkpoint (or of the newest in a folder), and the process its random numbers.

    Raises FormatError in one line for what is no checkpoint, is damaged, or is of another model, optimizer or scheduler; nothing is
    changed then.
    """
    folder = find_checkpoint(path)
    manifest = read_manifest(folder)
    model, optimizer = (read_tensors(folder, name, manifest) for name in (MODEL, OPTIMIZER))
    found = _checkpoint(folder, manifest)
    state = TrainingState.of(model, optimizer, manifest.get("optimizer"), source=str(folder))
    with _random_kept():
        _restore_random(found)
        write_state(pipeline, state, str(folder))
    return found


def _checkpoint(folder: Path, manifest: Mapping[str, Any]) -> Checkpoint:
    try:
        return Checkpoint(
            path=folder,
            mini_batch=_count(manifest["mini_batch"]),
            schedule=str(manifest["schedule"]["name"]),
            seed=int(manifest["seed"]),
            data=_mapping(from_json(manifest["data"])),
            random=GlobalRandom.of(from_json(manifest["rng"])),
            loss_scale=_loss_scale(manifest.get("loss_scale")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{folder} is of another version of schedir ({type(error).__name__}: {error}): use that one") from error


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r:.40} is no number of mini-batches")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} says nothing about the data")
    return value


def _loss_scale(plain: Any) -> Mapping[str, Any] | None:
    """Return the state of a loss scale in the types that it has, None if there was none."""
    return None if plain is None else {"scale": float(plain["scale"]), "made": int(plain["made"])}


@contextmanager
def _random_kept() -> Iterator[None]:
    """Leave the process its random numbers if anything is raised inside."""
    before = GlobalRandom.current()
    try:
        yield
    except BaseException:
        before.restore()
        raise


def _restore_random(found: Checkpoint) -> None:
    try:
        found.random.restore()
    except (RuntimeError, TypeError, ValueError) as error:
        raise FormatError(
            f"{found.path}: its random numbers are not those of this version of torch, Python or numpy ({error}): use those it was "
            "written with"
        ) from error
