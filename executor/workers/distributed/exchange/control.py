"""Words between process 0 and each other process, beside the graph's own messages: a star of lanes.

gather      every process ── value ──▶ process 0          broadcast     process 0 ── value ──▶ every process
clocks      a round trip is answered by the lanes' own threads, so that nobody computes between its times
end         every process ── number of its passes ──▶ process 0, and from there to all; nobody waits for it. Passes begin without
            a word, so whoever has more of them would wait in one for a process that has no more to give
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from executor.run.clock import now
from executor.workers.clocks import NUM_ROUND_TRIPS, RoundTrip
from executor.workers.distributed.messages.lanes import Key, Outgoing
from executor.workers.distributed.watching.causes import error_of
from executor.workers.distributed.watching.watch import Watch
from schedir.errors import ArgumentError, RunError

WORD, PING, PONG, END = (-1, 0), (-2, 0), (-3, 0), (-4, 0)
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
        self._passes = 0
        """Begun by this process."""
        self._ended: dict[int, int] = {}
        """By process: how many passes there are for it."""
        self._fail: Callable[[BaseException], None] | None = None

    def listen(self, fail: Callable[[BaseException], None]) -> None:
        """Call this with an error that must end the pass that this process is in."""
        self._fail = fail

    def connect(self, lanes: dict[int, Outgoing]) -> None:
        """Take the outgoing lanes by process."""
        self._lanes = lanes

    def deliver(self, peer: int, key: Key, value: Any) -> None:
        """Take a message of a process; runs in its lane's thread."""
        arrived = now()
        if key == WORD:
            self._words[peer].put(value)
        elif key == PING:
            # `begin` runs when the answer's turn on the lane comes: the second `now` is when it really leaves
            self._lanes[peer].send(PONG, None, begin=lambda: (value, arrived, now()))
        elif key == END:
            self._hear_end(peer, value)
        else:
            sent, received_there, sent_there = value
            self._trips.put(RoundTrip(sent, received_there, sent_there, arrived))

    def begin_pass(self) -> None:
        """Count a pass; raise ArgumentError if another process has none for it."""
        self._passes += 1
        for peer in tuple(self._ended):
            if (error := self._mismatch(peer)) is not None:
                raise error

    def end_passes(self) -> None:
        """Say that this process has no further pass."""
        for peer in self.peers:
            self._lanes[peer].send(END, self._passes)

    def _hear_end(self, peer: int, passes: int) -> None:
        # noted before it is compared, as `begin_pass` counts before it does: one of the two sees a difference
        self._ended[peer] = passes
        error = self._mismatch(peer)
        if error is not None and self._fail is not None:
            self._fail(error)

    def _mismatch(self, peer: int) -> ArgumentError | None:
        """Return what is wrong if a process has fewer passes than this one."""
        passes = self._ended[peer]
        if self._passes <= passes:
            return None
        return ArgumentError(
            f"process {peer} comes to the end of the data after pass {passes} while process {self._number} comes to the start of "
            f"pass {self._passes}: give every process the same number of mini-batches"
        )

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
            # not time alone: a process may compute as long as it likes, if only its lane comes to other tasks
            if progress != seen:
                seen, limit = progress, monotonic() + self._timeout_s
            elif monotonic() > limit:
                self._watch.position.waits_for = peer
                raise RunError(
                    f"waited {self._timeout_s:g} s for process {peer} at the end of a pass: raise timeout if it needs longer"
                )
