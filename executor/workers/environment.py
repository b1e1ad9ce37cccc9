"""What the environment says about the processes that were started together. Needs no torch.

torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process that it starts, and so does `launch`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from schedir.errors import ArgumentError

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets for every process that it starts."""
LISTENING = "SCHEDIR_LISTENING"
"""A socket for the store that is open already: `launch` gives it to process 0, since a port that is only free may be taken."""
AGENT_ID, AGENT_KEEPS_STORE = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"
"""What torchrun's agent says of itself to the processes that it starts."""
PARENT = os.getppid()
"""Who started this process. Asked at once: a process whose parent ends is given another."""


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """Where a process stands among those that were started together."""

    number: int
    """0 … count: the process runs the device of this number."""
    count: int
    address: str
    """Host of the store."""
    port: int

    @property
    def store(self) -> str:
        """Return where the store is, and who keeps it."""
        keeper = "torchrun's agent" if agent_keeps_store() else "process 0"
        return f"the store at {self.address}:{self.port}, which {keeper} keeps"


def launched() -> bool:
    """Return True if this process was started by torchrun, or by anything else that sets its variables."""
    return all(name in os.environ for name in VARIABLES)


def started_together() -> bool:
    """Return True if this process is one of several: then workers "auto" are distributed."""
    return process_count() > 1


def process_number() -> int:
    """Return this process's number; 0 for one that was started alone. Only process 0 should print and write files."""
    return int(os.environ["RANK"]) if launched() else 0


def process_count() -> int:
    """Return how many processes were started together."""
    return int(os.environ["WORLD_SIZE"]) if launched() else 1


def processes_here() -> int:
    """Return how many of them run on this host, or could: what torchrun says, else all."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", process_count()))


def agent_keeps_store() -> bool:
    """Return True if the store is kept by torchrun's agent; else process 0 keeps it."""
    return os.environ.get(AGENT_KEEPS_STORE) == "True"


def agent_is_gone() -> bool:
    """Return True if torchrun's agent started this process, and has ended without ending it: then nobody else will."""
    return AGENT_ID in os.environ and os.getppid() != PARENT


def listening_socket() -> int | None:
    """Return the file descriptor of the socket on which this process shall keep the store, None if it has to make one."""
    return int(os.environ[LISTENING]) if LISTENING in os.environ else None


def place() -> ProcessPlace:
    """Return where this process stands; raise ArgumentError if nobody says so."""
    if not launched():
        missing = ", ".join(name for name in VARIABLES if name not in os.environ)
        raise ArgumentError(
            f"workers 'distributed' needs {missing} in the environment: start with torchrun --nproc-per-node DEVICES, or use "
            "workers='threads'"
        )
    number, count, address, port = (os.environ[name] for name in VARIABLES)
    return ProcessPlace(int(number), int(count), address, int(port))
