"""The flags of `schedir train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schedir.cli.flags.flags import flag, switch
from schedir.cli.flags.options import STAGES_HELP
from schedir.cli.flags.recipes import RECIPE_HELP
from schedir.cli.flags.values import count, length, one_of, path, random_seed, text
from schedir.cli.flags.workers import timeout_flag
from schedir.errors import ArgumentError

OUT = Path("out")
"""Where files go if no folder is named."""
NUM_DEVICES = 2
"""Devices where neither --devices nor the recipe's stages say how many."""
WORKERS = ("auto", "threads", "distributed", "cuda", "cuda-partitions")
ON_NAN = ("warn", "raise", "continue")
NORM_WAYS = ("plain", "deferred")
DYNAMIC = "dynamic"
WORKERS_HELP = (
    "What devices are: threads; distributed: processes that torchrun started; cuda: GPUs, on which devices take turns where there "
    "are fewer; cuda-partitions: shares of one GPU; auto, if not given: what was started, else GPUs if there are any, else threads."
)
NUM_MICRO_BATCHES = 4
"""Micro-batches where --micro-batches is not given."""
NUM_MINI_BATCHES = 100
"""Mini-batches at most where neither --epochs nor --mini-batches is given: data may be endless."""


def scaling(text: str) -> str | float:
    """Read a loss scale: the word for one that follows the gradients, or a number."""
    try:
        return text if text == DYNAMIC else length(text)
    except ArgumentError:
        raise ArgumentError(f"must be {DYNAMIC} or a finite number above 0") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainShape:
    """Shape."""

    devices: int | None = flag(
        "--devices", count, "N", f"Devices of the pipeline (p); if not given as many as the recipe's stages want, or {NUM_DEVICES}."
    )
    micro_batches: int | None = flag(
        "--micro-batches", count, "N", f"Micro-batches per update (m); {NUM_MICRO_BATCHES} if not given."
    )
    stages_per_device: int | None = flag("--stages-per-device", count, "N", STAGES_HELP)
    plan: Path | None = flag("--plan", path, "FILE", "A plan file (TOML): schedule, shape, and where the model is cut.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Training."""

    model: str | None = flag("--model", text, "RECIPE", f"What to train: {RECIPE_HELP}")
    mini_batch_size: int | None = flag(
        "--mini-batch-size", count, "N", "Samples of one update; the recipe's data are cut to it. As the data come if not given."
    )
    epochs: int | None = flag(
        "--epochs",
        count,
        "N",
        f"Times that the data are gone through; 1, and at most {NUM_MINI_BATCHES} mini-batches, if not given.",
    )
    epoch_size: int | None = flag(
        "--epoch-size", count, "N", "Mini-batches of one epoch, for data without an end; as far as the data go if not given."
    )
    mini_batches: int | None = flag(
        "--mini-batches", count, "N", "End after so many mini-batches, those before a checkpoint counted."
    )
    lr: float | None = flag("--lr", length, "RATE", "Learning rate, in place of the recipe's.")
    loss_scaling: str | float | None = flag(
        "--loss-scaling", scaling, "dynamic|SCALE", "Multiply losses, for float16, in place of the recipe's; SCALE never changes."
    )
    batch_norm: str | None = flag(
        "--batch-norm",
        one_of(*NORM_WAYS),
        "|".join(NORM_WAYS),
        "Whether micro-batches move BatchNorm's running statistics, or a mini-batch, once; in place of the recipe's.",
    )
    on_nan: str | None = flag(
        "--on-nan", one_of(*ON_NAN), "|".join(ON_NAN), f"What to do where a loss is not finite; {ON_NAN[0]}, once, if not given."
    )
    seed: int | None = flag("--seed", random_seed, "N", "Seed of weights, data and dropout; 0 if not given.")
    workers: str | None = flag("--workers", one_of(*WORKERS), "KIND", WORKERS_HELP)
    timeout: float | None = timeout_flag()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOutput:
    """Checkpoints and output."""

    out: Path | None = flag(
        "--out",
        path,
        "FOLDER",
        f"Where checkpoints, losses, pictures, trace and report go; one training at a time; {OUT} if not given.",
    )
    checkpoint_every: int | None = flag(
        "--checkpoint-every",
        count,
        "N",
        "Mini-batches between two checkpoints; if not given only one, which is written at the end anyway.",
    )
    keep_last: int | None = flag(
        "--keep-last",
        count,
        "N",
        "Checkpoints that stay: once a new one is whole, older ones are removed, but not the one of least validation loss. All if "
        "not given.",
    )
    evaluate_every: int | None = flag(
        "--evaluate-every",
        count,
        "N",
        "Mini-batches between two evaluations of the recipe's validation; if not given one after every epoch. One at first and "
        "one at the end there are anyway.",
    )
    resume: bool = switch(
        "--resume", "Go on from the newest checkpoint in --out, or from CHECKPOINT; --resume auto begins where there is none."
    )

    @property
    def folder(self) -> Path:
        return self.out or OUT

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"
