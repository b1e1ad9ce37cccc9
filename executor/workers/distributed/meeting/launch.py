"""Start processes on this host that find each other, as torchrun does: for programs and tests that want to stay one Python call."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from time import monotonic
from typing import Any

from executor.workers.distributed.meeting.limits import ended_after
from executor.workers.environment import LISTENING
from schedir.errors import ArgumentError, RunError

PRELOADED = ["torch._dynamo"]
"""What every training process imports: a server that has it already forks them, so that they start at once."""

_Result = tuple[Any, BaseException | None, str]
"""(value, error, traceback) of a process."""

HOST = "127.0.0.1"
POLL_S = 0.5
END_S = 2 * ended_after()
"""How long the others have, once one process has failed, before they are ended: they do it themselves, and name it, in half of it,
however long their timeout is; the other half is for a busy host.
"""


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """What became of one process."""

    number: int
    exit_code: int | None
    """As the operating system gives it, negative for a signal; None if it had to be ended."""
    value: Any = None
    """What its function returned."""
    error: BaseException | None = None
    """What it raised, if that can be sent."""
    trace: str = ""


def launch(function: Callable[..., Any], *args: Any, num_processes: int, timeout_s: float) -> list[Any]:
    """Call a function in several new processes; return what it returned in each, in their order.

    The function must be importable by name (defined in a module), its arguments and results picklable. Raises the first error
    of a process, or RunError if one ends without result or not within `timeout_s`. No process is left.
    """
    outcomes = outcomes_of(function, *args, num_processes=num_processes, timeout_s=timeout_s)
    failed = [outcome for outcome in outcomes if outcome.error is not None or outcome.exit_code != 0]
    if not failed:
        return [outcome.value for outcome in outcomes]
    first = next((outcome for outcome in failed if outcome.error is not None), failed[0])
    if first.error is None:
        raise RunError(f"process {first.number} of {num_processes} ended with exit code {first.exit_code} and without a result")
    first.error.add_note(f"in process {first.number} of {num_processes}:\n{first.trace}")
    raise first.error


def outcomes_of(function: Callable[..., Any], *args: Any, num_processes: int, timeout_s: float) -> list[ProcessOutcome]:
    """Call a function in several new processes; return what became of each, in their order."""
    if num_processes < 1:
        raise ArgumentError(f"num_processes {num_processes} starts nothing: give at least 1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    # opened here, so that nobody takes the port before process 0 has come to keep the store on it
    listening = socket.create_server((HOST, 0))
    variables = {"WORLD_SIZE": str(num_processes), "MASTER_ADDR": HOST, "MASTER_PORT": str(listening.getsockname()[1])}
    processes: list[ForkServerProcess] = []
    ends: list[Connection] = []
    try:
        for number in range(num_processes):
            here, there = context.Pipe(duplex=False)
            own = variables | {"RANK": str(number), "LOCAL_RANK": str(number)}
            call = _Call(there, own, function, args, None if number else listening)
            processes.append(context.Process(target=call, daemon=True))
            ends.append(here)
            processes[-1].start()
            # the process has the only sending end then, and process 0 the only socket: if it dies, the others notice
            there.close()
            listening.close()
        return _collect(processes, ends, timeout_s)
    finally:
        listening.close()
        for process in processes:
            _end(process)


@dataclass(frozen=True, slots=True)
class _Call:
    """What a new process does: it calls a function and sends what that gives."""

    there: Connection
    variables: dict[str, str]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    listening: socket.socket | None
    """Of the store, for the process that keeps it."""

    def __call__(self) -> None:
        os.environ.update(self.variables)
        if self.listening is not None:
            os.environ[LISTENING] = str(self.listening.detach())
        try:
            # Not Connection.send: torch would share the memory of a process that ends.
            packed = pickle.dumps((self.function(*self.arguments), None, ""))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the caller shall see it
            self.there.send_bytes(_pickled(error, traceback.format_exc()))
            raise SystemExit(1) from None
        self.there.send_bytes(packed)


def _pickled(error: BaseException, trace: str) -> bytes:
    try:
        packed = pickle.dumps((None, error, trace))
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - of any kind: the error's class cannot be pickled
        return pickle.dumps((None, RunError(f"{type(error).__name__}: {error}"), trace))
    return packed


def _collect(processes: Sequence[ForkServerProcess], ends: Sequence[Connection], timeout_s: float) -> list[ProcessOutcome]:
    """Wait for all; once one has failed, the others have END_S."""
    limit, results = monotonic() + timeout_s, dict[int, _Result]()
    running = set(range(len(processes)))
    while running and monotonic() < limit:
        wait([*(ends[n] for n in running - results.keys()), *(processes[n].sentinel for n in running)], timeout=POLL_S)
        ended = {number for number in running if processes[number].exitcode is not None}
        # before it has ended: a process whose result fills the pipe ends only once somebody reads it
        for number in running - results.keys():
            _receive(ends[number], number, results)
        if any(processes[number].exitcode for number in ended):
            limit = min(limit, monotonic() + END_S)
        running -= ended
    return [ProcessOutcome(n, process.exitcode, *results.get(n, (None, None, ""))) for n, process in enumerate(processes)]


def _receive(end: Connection, number: int, results: dict[int, _Result]) -> None:
    """Take a process's result, if it has sent one."""
    if end.poll():
        try:
            results[number] = pickle.loads(end.recv_bytes())
        except EOFError:
            results[number] = None, None, ""


def _end(process: ForkServerProcess) -> None:
    """End a process that still runs, even one that is stopped."""
    if process.exitcode is None:
        process.kill()
    process.join()
    process.close()
