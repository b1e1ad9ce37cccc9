"""Train in processes of their own, killed at random moments.

    python -m tests.executor.checkpoint.kill_rounds FOLDER SCHEDULE KILLS

Everything is imported once and every training is forked off, so that a process lives for its training and not for its imports.
Prints how many checkpoints the killed processes had left; every row of them has to end as the one that was not killed.
"""

import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from executor.checkpoint.folder import find_checkpoint, has_checkpoints
from tests.executor.checkpoint.checkpointed import train_with_checkpoints

MINI_BATCHES = 20
POLL_S = 0.002


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in find_checkpoint(folder).glob("*.safetensors")}


@dataclass(frozen=True, slots=True)
class Moment:
    """When a process is killed, by what it has done: on a busy machine seconds alone may kill every one before its first step."""

    checkpoints: int
    """How often it has saved by then."""
    seconds: float
    """How long ago at least."""


def num_checkpoints(folder: Path) -> int:
    return len(list(folder.glob("mini-batch-*")))


def kill_at(moment: Moment, child: int, folder: Path, *, before: int) -> None:
    """Kill a process that began with so many checkpoints; one that ends earlier is left as it is."""
    result = partial(os.waitid, os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    while num_checkpoints(folder) < before + moment.checkpoints and result() is None:
        time.sleep(POLL_S)
    time.sleep(moment.seconds)  # the moment of the kill, not a wait for anything
    os.kill(child, signal.SIGKILL)


def train_apart(folder: Path, schedule: str, moment: Moment | None = None) -> bool:
    """Train in a process of its own, killed at a moment if one is given; return whether it reached the end."""
    before = num_checkpoints(folder)
    child = os.fork()
    if not child:
        code = 1
        try:
            train_with_checkpoints(folder, schedule, MINI_BATCHES)
            code = 0
        finally:
            os._exit(code)
    if moment is not None:
        kill_at(moment, child, folder, before=before)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a training failed by itself"
    return not os.WIFSIGNALED(status)


def import_what_torch_puts_off() -> None:
    """Take one step of an optimizer: torch imports seconds' worth of modules for it."""
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.Adam([parameter]).step()


def main(folder: Path, schedule: str, kills: int) -> None:
    import_what_torch_puts_off()
    moments = random.Random(schedule)
    begin = time.monotonic()
    assert train_apart(folder / "whole", schedule)
    pace_s, expected = (time.monotonic() - begin) / num_checkpoints(folder / "whole"), files_of(folder / "whole")
    killed, rows, seen = 0, 0, set()
    while killed < kills:
        moment = Moment(moments.randrange(4), moments.random() * pace_s)
        ended = train_apart(folder / f"row-{rows}", schedule, moment)
        killed += not ended
        if has_checkpoints(folder / f"row-{rows}"):
            seen.add((rows, find_checkpoint(folder / f"row-{rows}").name))
        if ended or killed == kills:
            assert ended or train_apart(folder / f"row-{rows}", schedule)
            assert files_of(folder / f"row-{rows}") == expected, f"row {rows} ended otherwise after {killed} kills"
            rows += 1
    sys.stdout.write(json.dumps({"killed": killed, "rows": rows, "checkpoints": len(seen)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
