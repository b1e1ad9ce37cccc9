"""The kinds of workers that one process can have, as commands offer them."""

from __future__ import annotations

WORKERS = ("threads", "cuda", "cuda-partitions")
"""Those of `executor.workers.choice.LOCAL`."""
WORKERS_HELP = (
    "threads, one per device, if not given; cuda: GPUs, on which devices take turns where there are fewer; cuda-partitions: shares "
    "of one GPU's multiprocessors."
)
