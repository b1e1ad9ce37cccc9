"""What runs a training, as commands offer it: the kinds of workers that one process can have, and how long they wait."""

from __future__ import annotations

from typing import Any

from schedir.cli.flags.flags import flag
from schedir.cli.flags.values import length

WORKERS = ("threads", "cuda", "cuda-partitions")
"""Those of `executor.workers.choice.LOCAL`."""
WORKERS_HELP = (
    "threads, one per device, if not given; cuda: GPUs, on which devices take turns where there are fewer; cuda-partitions: shares "
    "of one GPU's multiprocessors."
)
TIMEOUT_S = 600.0
"""Seconds that anybody waits for a device where --timeout is not given, as a Trainer has it."""


def timeout_flag() -> Any:
    """Declare --timeout, which error lines name: the same for every command that trains anything."""
    return flag(
        "--timeout",
        length,
        "SECONDS",
        f"How long a device or process may be waited for before all ends with an error; {TIMEOUT_S:g} if not given.",
    )
