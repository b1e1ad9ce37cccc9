"""Which kind of workers a name stands for."""

from __future__ import annotations

from executor.clock import Recorder
from executor.workers.base import Workers
from executor.workers.team import computing_with
from executor.workers.threads import ThreadWorkers
from schedir.errors import ArgumentError

AUTO = "auto"


def choose_workers(name: str) -> str:
    """Return the kind of workers for a name, that for this machine for `auto`; raise ArgumentError for an unknown one."""
    if name not in {AUTO, *KINDS}:
        raise ArgumentError(f"workers {name!r} is unknown: use {' or '.join((AUTO, *KINDS))}")
    return "threads" if name == AUTO else name


def thread_workers(num_devices: int, recorder: Recorder, timeout_s: float) -> Workers:
    """Return one thread for every device; each computes with one thread, since the devices share the cores."""
    return ThreadWorkers(num_devices, recorder, timeout_s=timeout_s, enter=computing_with(1))


KINDS = {"threads": thread_workers}
"""What makes the workers, by kind."""
