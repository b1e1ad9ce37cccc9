"""Who takes part: what torchrun (or `launch`) tells a process by its environment, and how the processes find each other.

    environment ──▶ ProcessPlace (number, count, address) ──▶ the store ──▶ hello of every process ──▶ Members

The store (torch's TCPStore) is the one thing that lives as long as the process: process 0, or torchrun's agent, keeps it. A
connection between processes belongs to one run, so that a run that failed leaves nothing behind for the next. Nobody knows yet who
is alive, so every wait here can be interrupted, has a limit, and says for whom it is.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from time import sleep
from typing import Any

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed.meeting.addresses import address_towards
from executor.workers.distributed.meeting.interruptible import POLL_S, interruptible
from executor.workers.distributed.meeting.limits import LOST_S, MOST_CONNECT_S, come_after
from executor.workers.distributed.meeting.silence import Silence
from executor.workers.environment import (
    ProcessPlace,
    agent_is_gone,
    agent_keeps_store,
    listening_socket,
    place,
)
from schedir.errors import RunError

_POLL_S = 0.05


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
    gpu: str = ""
    """The card that it computes on, as all processes would call it; empty for the CPU."""
    address: str = ""
    """From which it reaches the store; empty if that is not known."""

    def __str__(self) -> str:
        return f"process {self.number} (host {self.host}, device {self.number})"


@cache
def store() -> Store:
    """Return the store that all processes share; it is kept as long as this process lives, since others may need it."""
    here = place()
    # An agent of torchrun keeps it already, or else process 0 does.
    return _connect(here, keeps=here.number == 0 and not agent_keeps_store())


def second_client() -> Store:
    """Return a connection of its own to the store: a client answers one question after the other."""
    return _connect(place(), keeps=False)


def _connect(here: ProcessPlace, *, keeps: bool) -> Store:
    options: dict[str, Any] = {"timeout": timedelta(seconds=MOST_CONNECT_S), "wait_for_workers": False, "multi_tenant": keeps}
    if keeps and (listening := listening_socket()) is not None:
        options["master_listen_fd"] = listening
    try:
        return interruptible(
            lambda: TCPStore(here.address, here.port, is_master=keeps, **options),
            about=lambda: f"process {here.number} waited for {here.store}",
            timeout_s=MOST_CONNECT_S,
            look=check_agent,
        )
    except RuntimeError as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"process {here.number} cannot reach {here.store}: {_first_line(error)}") from error


def check_agent() -> None:
    """Raise RunError if torchrun's agent has gone and left this process behind."""
    if agent_is_gone():
        raise RunError(f"torchrun's agent, which started process {place().number}, is gone")


def own_run() -> str:
    """Return the name under which the processes meet for their next run: all of them start their runs in one order."""
    here, shared = place(), store()
    number = interruptible(
        lambda: shared.add(f"schedir/runs/{here.number}", 1),
        about=lambda: f"process {here.number} waited for an answer of {here.store}",
        timeout_s=LOST_S,
        look=check_agent,
    )
    return f"schedir/{number}"


def meet(run: str, setting: str, *, timeout_s: float, gpu: str = "") -> tuple[Participant, ...]:
    """Tell the others who this process is, and return all members once each has come; raise RunError naming who has not."""
    here = place()
    address = address_towards(here.address)
    own = Participant(here.number, socket.gethostname(), os.getpid(), clock_name(), setting, gpu, address)
    meeting = _Meeting(PrefixStore(run, store()), here, Silence(limit_s=LOST_S, look_s=POLL_S))
    try:
        hold = partial(meeting.hold, own)
        return interruptible(hold, about=meeting.about, timeout_s=come_after(timeout_s), look=meeting.look)
    except RuntimeError as error:
        check_agent()
        if isinstance(error, RunError):
            raise
        raise RunError(f"{here.store}, was gone at the start of the run: {_first_line(error)}") from error
    finally:
        meeting.is_over = True


class _Meeting:
    """Waits for the hello of every process, in a thread of its own."""

    def __init__(self, shared: Store, here: ProcessPlace, silence: Silence) -> None:
        self._shared, self._here, self._silence = shared, here, silence
        self._answers = 0
        """Of the store."""
        # Not this process: an interrupt before the first look at the store would name it among those it waits for.
        self._missing = [number for number in range(here.count) if number != here.number]
        """Other processes that have not been heard yet."""
        self.is_over = False
        """Nobody waits any more."""

    def hold(self, own: Participant) -> tuple[Participant, ...]:
        """Say hello, and return all members once each has; nobody when it is over before."""
        self._shared.set(_hello(own.number), json.dumps(asdict(own)))
        while not self.is_over:
            self._missing = [number for number in self._missing if not self._shared.check([_hello(number)])]
            self._answers += 1
            if not self._missing:
                return tuple(Participant(**json.loads(self._shared.get(_hello(number)))) for number in range(self._here.count))
            sleep(_POLL_S)
        return ()  # to ask for a hello that has not come would keep this thread, and torch would warn of it a minute later

    def about(self) -> str:
        """Say for whom this process waits."""
        names = ", ".join(map(str, self._missing))
        whom = f"process {names} of {self._here.count}" if names else "the store, in which all processes have said hello"
        return f"process {self._here.number} waited at the start of the run for {whom}"

    def look(self) -> None:
        """Raise RunError if the store does not answer: one that is stopped never does."""
        check_agent()
        if self._silence.is_too_long(self._answers):
            raise RunError(
                f"{self._here.store}, has not answered process {self._here.number} for {self._silence.limit_s:g} s: it is stopped, "
                "or its host is gone"
            )


def _hello(number: int) -> str:
    return f"hello/{number}"


def clock_name() -> str:
    """Return what tells apart the clocks that processes read: the host's start, and the name space of its times."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return f"{socket.gethostname()} {os.getpid()}"  # not Linux: nobody is known to share a clock


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
