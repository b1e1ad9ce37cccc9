"""Train in processes of their own, killed at random moments: `python -m tests.executor.kill_rounds FOLDER SCHEDULE KILLS`.

Everything is imported once and every training is forked off, so that a process lives for its training and not for its imports.
Prints how many checkpoints the killed processes had left; every row of them has to end as the one that was not killed.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from executor.checkpoint.folder import find_checkpoint, has_checkpoints
from tests.executor.checkpointed import train_with_checkpoints

MINI_BATCHES = 20


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in find_checkpoint(folder).glob("*.safetensors")}


def train_apart(folder: Path, schedule: str, seconds: float | None = None) -> bool:
    """Train in a process of its own, killed after some seconds if any are given; return whether it reached the end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            train_with_checkpoints(folder, schedule, MINI_BATCHES)
            code = 0
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)  # the moment of the kill, not a wait for anything
        os.kill(child, signal.SIGKILL)
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
    length, expected = time.monotonic() - begin, files_of(folder / "whole")
    killed, rows, seen = 0, 0, set()
    while killed < kills:
        ended = train_apart(folder / f"row-{rows}", schedule, moments.uniform(0.1, 0.7) * length)
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
