"""Who is alive, and why a run ends: every process tells the store what it is at, and all of them agree on one first cause.

    every BEAT_S, by a thread of its own
        write   beat/k: a count, what the compute lane is at, which process it waits for
        read    cause: has somebody failed?         the first one written stays
        read    beat/(k − 1): does it still change?   not for `lost_s`: it is stopped, or its host is gone

A process that fails writes the cause before it drops its connections. So whoever finds a connection broken and no cause knows that
its peer died without a word. A store that does not answer means that process 0, which keeps it, is stopped or gone; so process 0
leaves last, when all others have said that they know.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import monotonic

from torch.distributed import Store  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed.causes import Cause
from executor.workers.distributed.start import Participant

BEAT_S = 0.2
LOST_S = 20.0
"""How long a process may be silent; a computation does not make it silent."""
LEAST_LOST_S = 2.0
LINGER_S = 3.0
"""How long process 0 waits for the others before it leaves."""
_LEAVE_POLL_S = 0.02
_JOIN_S = 0.5
_CAUSE = "cause"


@dataclass(slots=True)
class Position:
    """What this process's compute lane is at; written by it, read by the watch."""

    task: int = -1
    waits_for: int = -1
    """Process whose value it waits for, -1 if it computes."""


class Watch:
    """Watches over the processes of one run, from `start` to `stop`."""

    def __init__(self, number: int, members: tuple[Participant, ...], store: Store, *, lost_s: float) -> None:
        self._number, self._members, self._store, self._lost_s = number, members, store, lost_s
        self.position = Position()
        self.describe: Callable[[int], str] = str
        """Gives a task's text."""
        self._listeners: list[Callable[[Cause], None]] = []
        self._cause: Cause | None = None
        self._lock = threading.Lock()
        self._decided, self._stopped, self._wake = threading.Event(), threading.Event(), threading.Event()
        self._own: Cause | None = None
        self._count = 0
        self._answered = self._changed = monotonic()
        self._seen = ""
        self._observed: dict[int, str] = {}
        self._leaving, self._left = False, threading.Event()
        self._threads = [
            threading.Thread(target=self._beat, name="watch", daemon=True),
            threading.Thread(target=self._supervise, name="watch the store", daemon=True),
        ]

    def start(self) -> None:
        """Begin to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Take leave of the others and end the threads; one that waits for a store that is stopped ends with the process."""
        self._leaving = True
        self._wake.set()
        if self._threads[0].is_alive():
            self._left.wait(LINGER_S)
        self._stopped.set()
        self._wake.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_JOIN_S)

    @property
    def cause(self) -> Cause | None:
        """Why the run ends, None as long as it does not."""
        return self._cause

    def listen(self, listener: Callable[[Cause], None]) -> None:
        """Call this once a cause is known, at once if it is."""
        with self._lock:
            self._listeners.append(listener)
            cause = self._cause
        if cause is not None:
            listener(cause)

    def progress(self, number: int) -> str:
        """Return what a process was last at; text that changes as long as its compute lane goes on."""
        return self._observed.setdefault(number, "")

    def report(self, cause: Cause) -> Cause:
        """Tell all processes why the run ends; return the cause on which all agree, which may be another's."""
        self._propose(cause)
        self._decided.wait(self._lost_s + LEAST_LOST_S)
        self._decide(cause)  # nobody answers: then this is all that is known
        assert self._cause is not None
        return self._cause

    def broken(self, peer: int, error: BaseException) -> None:
        """Say that the connection to a process broke."""
        if self._stopped.is_set():
            return
        if isinstance(error, ConnectionError):
            position = self.position
            at = f", which was at {self.describe(position.task)}" if position.task >= 0 else ""
            waiting = " and waited for it" if position.waits_for == peer else ""
            text = f"{self._members[peer]} is gone: its connection to process {self._number}{at}{waiting}, broke"
            self._propose(Cause(peer, text))
        else:
            text = f"{self._members[self._number]} cannot talk to process {peer}: {type(error).__name__}: {error}"
            self._propose(Cause(self._number, " ".join(text.split())))

    def _propose(self, cause: Cause) -> None:
        with self._lock:
            self._own = self._own or cause
        self._wake.set()

    def _decide(self, cause: Cause) -> None:
        with self._lock:
            if self._cause is not None:
                return
            self._cause = cause
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(cause)
        self._decided.set()

    def _beat(self) -> None:
        try:
            while not self._stopped.is_set():
                self._round()
                self._answered = monotonic()
                self._wake.wait(_LEAVE_POLL_S if self._leaving else BEAT_S)
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 - of any kind that torch may raise: the store is gone
            if not self._stopped.is_set():
                why = " ".join(str(error).split())[:120]
                gone = Cause(0, f"{self._members[0]} is gone, or the store on its host: {why}")
                self._decide(self._own if self._own is not None and self._own.process == 0 else gone)

    def _round(self) -> None:
        self._count += 1
        position = self.position
        where = self.describe(position.task) if position.task >= 0 else ""
        self._store.set(f"beat/{self._number}", json.dumps([self._count, where, position.waits_for]))
        for number in tuple(self._observed):
            self._observed[number] = self._read(number).partition(",")[2]
        if self._leaving:
            self._take_leave()
        if self._cause is not None:
            return
        if self._store.check([_CAUSE]):
            self._decide(Cause(**json.loads(self._store.get(_CAUSE))))
        # who comes second gets the first one's cause back
        elif self._own is not None or self._neighbour_is_silent():
            assert self._own is not None
            text = json.dumps(asdict(self._explained(self._own)))
            self._decide(Cause(**json.loads(self._store.compare_set(_CAUSE, "", text))))

    def _take_leave(self) -> None:
        self._store.set(f"left/{self._number}", "")
        blamed = self._cause.process if self._cause is not None else -1
        others = [f"left/{member.number}" for member in self._members if member.number != blamed]
        if self._number or self._store.check(others):
            self._left.set()

    def _neighbour_is_silent(self) -> bool:
        """Look after the process before this one, in a ring: of those that are stopped at least one has a living neighbour."""
        neighbour = (self._number - 1) % len(self._members)
        now, beat = monotonic(), self._read(neighbour)
        if beat != self._seen:
            self._seen, self._changed = beat, now
        silent = now - self._changed > self._lost_s
        if silent:
            text = f"{self._members[neighbour]} has not answered for {self._lost_s:g} s: it is stopped, or its host is gone"
            self._propose(Cause(neighbour, text))
        return silent

    def _explained(self, cause: Cause) -> Cause:
        """Add what was known of the one who is to blame: the last in a row of processes that wait for each other."""
        to_blame = cause.process if cause.waited_for < 0 else self._last_of_row(cause.waited_for)
        if cause.error and cause.waited_for < 0:
            return cause
        _, where, waits_for = json.loads(self._read(to_blame) or '[0, "", -1]')
        at = f"seen at {where}" if where else "seen before its first task"
        waiting = f", waiting for process {waits_for}" if waits_for >= 0 else ""
        return Cause(**(asdict(cause) | {"text": f"{cause.text}; {self._members[to_blame]} was last {at}{waiting}"}))

    def _last_of_row(self, number: int) -> int:
        seen: set[int] = set()
        while number not in seen:
            seen.add(number)
            _, _, waits_for = json.loads(self._read(number) or '[0, "", -1]')
            number = waits_for if waits_for >= 0 else number
        return number

    def _read(self, number: int) -> str:
        key = f"beat/{number}"
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def _supervise(self) -> None:
        """Look after the store: a question to one that is stopped is never answered."""
        seen, missed = self._answered, 0  # counted, not timed: this process may have been stopped itself
        while not self._stopped.wait(BEAT_S):
            seen, missed = (seen, missed + 1) if self._answered == seen else (self._answered, 0)
            if missed * BEAT_S > self._lost_s:
                who = f"{self._members[0]}, which keeps the store,"
                self._decide(Cause(0, f"{who} has not answered for {self._lost_s:g} s: it is stopped, or its host is gone"))
                return
