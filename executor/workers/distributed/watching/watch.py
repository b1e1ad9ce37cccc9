"""Who is alive, and why a run ends: every process tells the store what it is at, and all of them agree on one first cause.

    every BEAT_S, by a thread of its own
        write   beat/k: a count, what the compute lane is at, which process it waits for
        read    cause: has somebody failed?         the first one written stays
        read    beat/(k − 1): does it still change?   not for `lost_s`: it is stopped, or its host is gone

A process that fails writes the cause before it drops its connections. So whoever finds a connection broken and no cause knows that
its peer died without a word. A store that does not answer means that whoever keeps it is stopped or gone; so process 0, which may
keep it, leaves last, when all others have said that they know. If torchrun's agent dies, nobody ends its processes: they do it
themselves.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict
from time import monotonic

from torch.distributed import Store  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed.meeting.limits import BREAK_OFF_S, LEAST_LOST_S, LINGER_S
from executor.workers.distributed.meeting.silence import Silence
from executor.workers.distributed.meeting.start import Participant
from executor.workers.distributed.watching.beats import Beat, Beats, Position
from executor.workers.distributed.watching.causes import Cause
from executor.workers.environment import agent_is_gone, agent_keeps_store, place

BEAT_S = 0.2
_LEAVE_POLL_S = 0.02
_JOIN_S = 0.5
_CAUSE = "cause"


class Watch:
    """Watches over the processes of one run, from `start` to `stop`."""

    def __init__(self, number: int, members: tuple[Participant, ...], store: Store, *, lost_s: float) -> None:
        self._number, self._members, self._store, self._lost_s = number, members, store, lost_s
        self._beats = Beats(store)
        self.position = Position()
        self.describe: Callable[[int], str] = str
        """Gives a task's text."""
        self._listeners: list[Callable[[Cause], None]] = []
        self._cause: Cause | None = None
        self._lock = threading.Lock()
        self._decided, self._stopped, self._wake = threading.Event(), threading.Event(), threading.Event()
        self._own: Cause | None = None
        self._count = 0
        """Of beats that the store has taken."""
        self._neighbours = Silence(limit_s=lost_s, look_s=BEAT_S)
        self._observed: dict[int, str] = {}
        self._roll: dict[int, str] | None = None
        """While somebody wants to know who is alive: the others' beats when he asked."""
        self._all_alive = threading.Event()
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
            # the beating thread sets it: where that has died with the store, nobody would
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

    def hear_out(self) -> None:
        """Return when it is known why the run ends, or that every other process is alive.

        For one who is interrupted: often it is because another has died, and torchrun's agent ends the rest.
        """
        if not self._threads[0].is_alive():
            return
        self._all_alive.clear()
        self._roll = {}
        self._wake.set()
        silence = Silence(limit_s=self._lost_s + LEAST_LOST_S, look_s=BEAT_S)
        while not (self._decided.wait(_LEAVE_POLL_S) or self._all_alive.is_set() or silence.is_too_long(None)):
            pass

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
            # the first error of this process: those behind it are mostly what the first has done
            self._own = self._own or cause
        self._wake.set()

    def _decide(self, cause: Cause) -> None:
        with self._lock:
            if self._cause is not None:
                return
            self._cause = cause
            listeners = tuple(self._listeners)
        # without the lock: a listener takes locks of its own
        for listener in listeners:
            listener(cause)
        # last: whoever waits for the decision finds everything told to stop
        self._decided.set()

    def _beat(self) -> None:
        try:
            while not self._stopped.is_set():
                self._round()
                # cleared behind the wait, not before: what is proposed during a round begins the next at once
                self._wake.wait(_LEAVE_POLL_S if self._leaving else BEAT_S)
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 - of any kind that torch may raise: the store is gone
            if not self._stopped.is_set():
                self._decide(self._loss_of_store(" ".join(str(error).split())[:120]))

    def _loss_of_store(self, why: str) -> Cause:
        """Return what it means that the store is gone."""
        if agent_keeps_store():
            return Cause(-1, f"torchrun's agent is gone, or its host, and with it the store at {place().address}: {why}")
        gone = Cause(0, f"{self._members[0]} is gone, or the store on its host: {why}")
        return self._own if self._own is not None and self._own.process == 0 else gone

    def _round(self) -> None:
        # stands still while the store does not answer, by which the supervisor knows
        self._count += 1
        if agent_is_gone():
            self._propose(Cause(self._number, f"torchrun's agent, which started {self._members[self._number]}, is gone"))
        position = self.position
        where = self.describe(position.task) if position.task >= 0 else ""
        self._beats.write(self._number, Beat(self._count, where, position.waits_for))
        # a copy: others ask for progress, and so add to it, meanwhile
        for number in tuple(self._observed):
            self._observed[number] = self._beats.position(number)
        self._call_roll()
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

    def _call_roll(self) -> None:
        """Find out who is alive, if somebody wants to know: whose beat goes on."""
        if self._roll is None:
            return
        # who has left in peace is no cause
        others = [number for number in range(len(self._members)) if number != self._number and not self._has_left(number)]
        # the first look is what later ones are held against: whoever lives is known after two
        changed = [self._roll.setdefault(number, beat) != beat for number, beat in ((n, self._beats.text(n)) for n in others)]
        if all(changed):
            self._all_alive.set()

    def _has_left(self, number: int) -> bool:
        return self._store.check([f"left/{number}"])

    def _take_leave(self) -> None:
        self._store.set(f"left/{self._number}", "")
        blamed = self._cause.process if self._cause is not None else -1
        # nobody waits for the word of the one to blame: it may be dead
        others = [f"left/{member.number}" for member in self._members if member.number != blamed]
        if self._number or self._store.check(others):
            self._left.set()

    def _neighbour_is_silent(self) -> bool:
        """Look after the process before this one, in a ring: of those that are stopped at least one has a living neighbour."""
        neighbour = (self._number - 1) % len(self._members)
        silent = self._neighbours.is_too_long(self._beats.text(neighbour))
        if silent:
            text = f"{self._members[neighbour]} has not answered for {self._lost_s:g} s: it is stopped, or its host is gone"
            self._propose(Cause(neighbour, text))
        return silent

    def _explained(self, cause: Cause) -> Cause:
        """Add what was known of the one who is to blame: the last in a row of processes that wait for each other."""
        to_blame = cause.process if cause.waited_for < 0 else self._beats.last_of_row(cause.waited_for)
        # an error of Python's says itself what failed; silence and broken connections say only where it was noticed
        if cause.error and cause.waited_for < 0:
            return cause
        beat = self._beats.last(to_blame)
        at = f"seen at {beat.where}" if beat.where else "seen before its first task"
        waiting = f", waiting for process {beat.waits_for}" if beat.waits_for >= 0 else ""
        return Cause(**(asdict(cause) | {"text": f"{cause.text}; {self._members[to_blame]} was last {at}{waiting}"}))

    def _supervise(self) -> None:
        """Look after the store: a question to one that is stopped is never answered."""
        store = Silence(limit_s=self._lost_s, look_s=BEAT_S)
        agent = Silence(limit_s=self._lost_s + BREAK_OFF_S + LINGER_S, look_s=BEAT_S)
        while not self._stopped.wait(BEAT_S):
            if store.is_too_long(self._count):
                keeper, who = (-1, "torchrun's agent") if agent_keeps_store() else (0, str(self._members[0]))
                why = f"has not answered for {self._lost_s:g} s: it is stopped, or its host is gone"
                self._decide(Cause(keeper, f"{who}, which keeps the store, {why}"))
            # as long as the agent lives every look finds another sign, so that no silence is counted
            if agent.is_too_long("gone" if agent_is_gone() else monotonic()):
                # the caller's thread is busy elsewhere (its data take long), so it has not heard of the cause: what the agent
                # would have sent ends it
                os.kill(os.getpid(), signal.SIGTERM)
                return
