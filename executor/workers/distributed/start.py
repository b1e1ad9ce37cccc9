"""Who takes part: what torchrun (or `launch`) tells a process by its environment, and how the processes find each other.

    environment ──▶ ProcessPlace (number, count, address) ──▶ the store ──▶ hello of every process ──▶ Members

The store (torch's TCPStore) is the one thing that lives as long as the process: process 0, or torchrun's agent, keeps it. A
connection between processes belongs to one run, so that a run that failed leaves nothing behind for the next.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from time import monotonic, sleep

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed.environment import ProcessPlace, place
from schedir.errors import RunError

_POLL_S = 0.05
_CONNECT_S = 60.0
"""How long a process tries to reach the store."""


@dataclass(frozen=True, slots=True)
class Participant:
    """One process of a run, as the others know it."""

    number: int
    host: str
    pid: int
    clock: str
    """Processes with the same text read the same clock."""
    setting: str
    """Everything that must be the same in all processes, as text: graph, seed, shapes and weights."""

    def __str__(self) -> str:
        return f"process {self.number} (host {self.host}, device {self.number})"


@cache
def store() -> Store:
    """Return the store that all processes share; it is kept as long as this process lives, since others may need it."""
    here = place()
    # An agent of torchrun keeps it already, or else process 0 does.
    keeps = here.number == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return _connect(here, keeps=keeps)


def second_client() -> Store:
    """Return a connection of its own to the store: a client answers one question after the other."""
    return _connect(place(), keeps=False)


def _connect(here: ProcessPlace, *, keeps: bool) -> Store:
    limit = timedelta(seconds=_CONNECT_S)
    try:
        return TCPStore(here.address, here.port, is_master=keeps, wait_for_workers=False, timeout=limit, multi_tenant=keeps)
    except RuntimeError as error:
        raise RunError(
            f"process {here.number} cannot reach the store at {here.address}:{here.port}: {_first_line(error)}"
        ) from error


def own_run() -> str:
    """Return the name under which the processes meet for their next run: all of them start their runs in one order."""
    return f"schedir/{store().add(f'schedir/runs/{place().number}', 1)}"


def meet(run: str, setting: str, *, timeout_s: float) -> tuple[Participant, ...]:
    """Tell the others who this process is, and return all members once each has come; raise RunError naming who has not."""
    here, shared = place(), PrefixStore(run, store())
    own = Participant(here.number, socket.gethostname(), os.getpid(), clock_name(), setting)
    try:
        shared.set(f"hello/{own.number}", json.dumps(asdict(own)))
        _await(shared, [f"hello/{number}" for number in range(here.count)], timeout_s)
        return tuple(Participant(**json.loads(shared.get(f"hello/{number}"))) for number in range(here.count))
    except RuntimeError as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"process 0, or the store on its host, was gone at the start of the run: {_first_line(error)}") from error


def _await(shared: Store, keys: list[str], timeout_s: float) -> None:
    limit, missing = monotonic() + timeout_s, keys
    while missing := [key for key in missing if not shared.check([key])]:
        if monotonic() > limit:
            names = ", ".join(key.removeprefix("hello/") for key in missing)
            raise RunError(
                f"process {names} of {len(keys)} did not come to the start of the run within {timeout_s:g} s: look at its output"
            )
        sleep(_POLL_S)


def clock_name() -> str:
    """Return what tells apart the clocks that processes read: the host's start, and the name space of its times."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return f"{socket.gethostname()} {os.getpid()}"  # not Linux: nobody is known to share a clock


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
