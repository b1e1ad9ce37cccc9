"""Started by torchrun on two hosts: trains as threads do, then until the hosts lose each other.

`script.py FOLDER`: process K makes FOLDER/goes-on-K when it is in that training, and writes what it has found and how it has ended
to FOLDER/said-K.json.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.training import train
from executor.workers.environment import place
from schedir.errors import RunError
from schedir.ir.action import Kind
from tests.distributed.programs.work import TIMEOUT_S
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, sgd

SCHEDULES = ("1f1b", "xpipe")
SETTLED_STEPS = 3


def checksum(weights: Mapping[str, Tensor]) -> str:
    """Return text that differs if any bit does."""
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(name.encode() + weights[name].contiguous().numpy().tobytes())
    return found.hexdigest()


def trained(schedule: str, workers: str) -> dict[str, Any]:
    """Train two small stages; return plain values."""
    graph = compiled(schedule, 2, 4)
    count = graph.program.num_mini_batches * (3 if graph.program.weights.synchronous else 1)
    run = train(graph, pipeline_of(mlp(2)), batches(count), workers=workers, timeout=TIMEOUT_S)
    transfers = graph.kind == Kind.TRANSFER
    return {
        "losses": run.losses,
        "weights": checksum(run.state_dict()),
        "meta": {key: run.timeline.meta[key] for key in ("processes", "clock", "causal")} if workers == "distributed" else {},
        "shortest transfer": float((run.timeline.end - run.timeline.start)[transfers].min()),
    }


def train_until_lost(told: Path, *, timeout_s: float) -> None:
    """Train without an end; say when it goes on."""
    pair = batches(1)[0]
    with Trainer(mlp(2), num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=timeout_s) as trainer:
        for _ in range(SETTLED_STEPS):
            trainer.step(*pair)
        replaced(told, "")
        while True:
            trainer.step(*pair)


def replaced(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    folder, number = Path(sys.argv[1]), place().number
    found = {schedule: trained(schedule, "distributed") for schedule in SCHEDULES}
    try:
        # silence of 20 s is the most that any timeout allows
        train_until_lost(folder / f"goes-on-{number}", timeout_s=2 * 20.0)
    except RunError as error:
        replaced(folder / f"said-{number}.json", json.dumps({"found": found, "error": str(error)}))
        raise
