"""Words between process 0 and each other process, beside the graph's own messages: a star of lanes.

gather      every process ── value ──▶ process 0          broadcast     process 0 ── value ──▶ every process
clocks      a round trip is answered by the lanes' own threads, so that nobody computes between its times
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from executor.run.clock import now
from executor.workers.clocks import NUM_ROUND_TRIPS, RoundTrip
from executor.workers.distributed.causes import error_of
from executor.workers.distributed.lanes import Key, Outgoing
from executor.workers.distributed.watch import Watch
from schedir.errors import ArgumentError, RunError

WORD, PING, PONG = (-1, 0), (-2, 0), (-3, 0)
"""Keys of messages."""
POLL_S = 0.05


class Control:
    """One process's end of the star."""

    def __init__(self, number: int, count: int, watch: Watch, *, timeout_s: float) -> None:
        self._number, self._watch, self._timeout_s = number, watch, timeout_s
        self.peers = range(1, count) if number == 0 else range(1)
        """Processes that this one talks to."""
        self._words: dict[int, SimpleQueue[Any]] = {peer: SimpleQueue() for peer in self.peers}
        self._trips: SimpleQueue[RoundTrip] = SimpleQueue()
        self._lanes: dict[int, Outgoing] = {}

    def connect(self, lanes: dict[int, Outgoing]) -> None:
        """Take the outgoing lanes by process."""
        self._lanes = lanes

    def deliver(self, peer: int, key: Key, value: Any) -> None:
        """Take a message of a process; runs in its lane's thread."""
        arrived = now()
        if key == WORD:
            self._words[peer].put(value)
        elif key == PING:
            self._lanes[peer].send(PONG, None, begin=lambda: (value, arrived, now()))
        else:
            sent, received_there, sent_there = value
            self._trips.put(RoundTrip(sent, received_there, sent_there, arrived))

    def gather(self, about: str, value: object) -> list[Any]:
        """Return the values of all processes in their order on process 0, nothing on the others.

        Raises ArgumentError if another process speaks about something else: it has come to another point of the run.
        """
        if self._number:
            self._lanes[0].send(WORD, (about, value))
            return []
        found = [value]
        for peer in self.peers:
            other, theirs = self._next(partial(self._words[peer].get, timeout=POLL_S), peer)
            if other != about:
                raise ArgumentError(
                    f"process {peer} comes to the {other} while process 0 comes to the {about}: give every process the same number "
                    "of mini-batches"
                )
            found.append(theirs)
        return found

    def broadcast(self, value: object) -> Any:
        """Return process 0's value on all processes."""
        if self._number:
            return self._next(partial(self._words[0].get, timeout=POLL_S), 0)
        for peer in self.peers:
            self._lanes[peer].send(WORD, value)
        return value

    def round_trips(self) -> list[RoundTrip]:
        """Return the times of some round trips to process 0; of none on process 0 itself."""
        found = []
        for _ in range(NUM_ROUND_TRIPS if self._number else 0):
            self._lanes[0].send(PING, None, begin=now)
            found.append(self._next(partial(self._trips.get, timeout=POLL_S), 0))
        return found

    def _next(self, get: Callable[[], Any], peer: int) -> Any:
        """Return what comes from a process; raise the run's cause, or RunError if that process makes no progress any more."""
        seen, limit = "", monotonic() + self._timeout_s
        while True:
            try:
                return get()
            except Empty:
                progress = self._watch.progress(peer)
            if self._watch.cause is not None:
                raise error_of(self._watch.cause)
            if progress != seen:
                seen, limit = progress, monotonic() + self._timeout_s
            elif monotonic() > limit:
                self._watch.position.waits_for = peer
                raise RunError(
                    f"waited {self._timeout_s:g} s for process {peer} at the end of a pass: raise timeout if it needs longer"
                )
