"""One direction of a link between two processes: a thread that sends on one side, a thread that receives on the other.

    compute lane ── send(key, value) ──▶ queue ──▶ sending thread ══ gloo ══▶ receiving thread ── deliver(key, value) ──▶ slot
                          └─ nothing on its way? then it starts at once ═╝

Sending never blocks, whatever the other side does; values keep their order; memory is held until it is sent. A receiver always
listens, so a sender never waits for a computation: a graph whose order is verified cannot deadlock. Where all cores compute, a
thread that was woken gets one only after milliseconds; so a send that need not wait for another is started by the thread that has
computed the value, and the sending thread only sees it end. What lies on a GPU always waits for the sending thread: a connection
of NCCL may have to be made first, and copies are made on that thread's stream, which is the one that sends them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from executor.workers.distributed.messages.codec import Packed, pack, tensors_of, unpack
from executor.workers.distributed.messages.frames import MessageRoom, framed, needed_for, opened, whole_value
from executor.workers.distributed.messages.transport import Transport

POLL_S = 0.05

Key = tuple[int, int]
"""(task, part) of a value; negative tasks are for control."""
Deliver = Callable[[Key, Any], None]
Started = tuple[Any, Tensor]
"""What to wait for, and the piece that it sends or fills."""
Broken = Callable[[int, BaseException], None]
"""Called with the number of the process at the other end; a ConnectionError says that it is gone."""


class _Lane:
    """What both ends have in common: a thread that serves until the lane is closed or breaks."""

    def __init__(self, transport: Transport, peer: int, tag: int, *, broken: Broken, name: str) -> None:
        self._transport, self.peer, self._tag, self._broken = transport, peer, tag, broken
        self._room = MessageRoom()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            with self._transport.enter():
                self._serve()
        except BaseException as error:  # noqa: BLE001 - whatever it is, somebody waits for what will not come
            self._broken(self.peer, error)

    def _serve(self) -> None:
        raise NotImplementedError

    def _wait(self, started: Sequence[Started]) -> None:
        """Return when all pieces are sent or received; raise ConnectionError."""
        try:
            for work, piece in started:
                self._transport.wait(work, piece)
        except RuntimeError as error:  # gloo has no type of its own
            raise ConnectionError(str(error)) from error


@dataclass(slots=True)
class _Order:
    """A value to be sent."""

    key: Key
    value: Any
    begin: Callable[[], Any] | None
    packed: Packed | None = None
    """Taken apart already; its span has begun then."""
    started: list[Started] | None = None
    """Its pieces, if it need not wait for its turn."""


class Outgoing(_Lane):
    """The sending end."""

    def __init__(self, transport: Transport, peer: int, tag: int, *, broken: Broken) -> None:
        super().__init__(transport, peer, tag, broken=broken, name=f"send to {peer}, lane {tag}")
        self._orders: SimpleQueue[_Order | threading.Event | None] = SimpleQueue()
        self._in_peace = True
        """The run has not failed: the other end is told that this was all."""
        self._turn = threading.Lock()
        """Held while an order gets its place; never for as long as anything takes on the other side."""
        self._unsent = 0

    def send(self, key: Key, value: object, *, begin: Callable[[], Any] | None = None) -> None:
        """Send a value after all that were given before; never waits for the other side.

        `begin` is called once, when the value's turn comes: in this thread if nothing is on its way, else in the lane's. What it
        returns, if anything, is sent instead.
        """
        order = _Order(key, value, begin)
        with self._turn:
            self._unsent += 1
            if self._unsent == 1 and self._in_peace and self._thread.is_alive():
                self._start_at_once(order)
            # also what has started: its end is waited for in its turn, and flush and close come behind it
            self._orders.put(order)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything given so far is sent; return whether it was within the limit."""
        reached, limit = threading.Event(), monotonic() + timeout_s
        with self._turn:
            if not self._unsent:
                return True  # at the end of a pass nearly always: no thread need be woken
            # in the row of values: when the thread comes to it, all that was given before is sent
            self._orders.put(reached)
        while not reached.wait(POLL_S):
            if monotonic() > limit or not self._thread.is_alive():
                return False
        return True

    def close(self) -> None:
        """Let the thread end when all is sent; the other end hears of it."""
        self._orders.put(None)

    def abandon(self) -> None:
        """Let the thread end with what it sends now; the other end hears of it when the connections break.

        No word of farewell: one run in a hundred has it meet the end of its connection, and gloo then waits for it for ever.
        """
        self._in_peace = False
        self._orders.put(None)

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None and self._in_peace:
            if isinstance(order, threading.Event):
                order.set()
                continue
            if order.started is None:
                order.started = self._started(_packed(order) if order.packed is None else order.packed)
            self._wait(order.started)
            with self._turn:
                self._unsent -= 1
            # or this thread would hold a sent value for as long as it waits for the next
            del order
        if self._in_peace:
            # the other end's loop ends at None
            self._wait(self._started(pack(None)))

    def _start_at_once(self, order: _Order) -> None:
        """Start an order that need not wait, in the thread that gives it."""
        if any(tensor.is_cuda for tensor in tensors_of(order.value)):
            return
        order.packed = _packed(order)
        # the sending thread will meet the error too, and tell
        with suppress(ConnectionError):
            order.started = self._started(order.packed)

    def _started(self, packed: Packed) -> list[Started]:
        """Start to send a message; raise ConnectionError."""
        pieces = framed(packed, self._room.size)
        # behind the framing, as the receiver grows behind the reading: both ends count the same messages for the next one's room
        self._room.grow(needed_for(len(packed.header), packed.tensors))
        # all pieces are started first: each wait for one would be a round trip
        try:
            return [(self._transport.send(piece, self.peer, self._tag), piece) for piece in pieces]
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error


def _packed(order: _Order) -> Packed:
    """Begin an order and take its value apart."""
    made = order.begin() if order.begin is not None else None
    return pack((order.key, order.value if made is None else made))


class Incoming(_Lane):
    """The receiving end."""

    def __init__(self, transport: Transport, peer: int, tag: int, *, broken: Broken, deliver: Deliver) -> None:
        super().__init__(transport, peer, tag, broken=broken, name=f"receive from {peer}, lane {tag}")
        self._deliver = deliver

    def _serve(self) -> None:
        listening = self._listen()
        while (content := self._receive(listening)) is not None:
            # before the value is handed over: the next may be on its way already
            listening = self._listen()
            self._deliver(*content)
            # or this thread would hold a value until the next one has come
            del content

    def _listen(self) -> Started:
        """Hold room ready for the next message."""
        return self._receiving(torch.empty(self._room.size, dtype=torch.uint8))

    def _receive(self, listening: Started) -> Any:
        self._wait([listening])
        piece = listening[1]
        first = opened(piece)
        if first.is_whole:
            unpacked = whole_value(first.header, piece)
        else:
            unpacked = unpack(first.header + self._rest(first.missing))
            self._wait([self._receiving(part) for part in unpacked.parts])
        self._room.grow(needed_for(len(first.header) + first.missing, unpacked.tensors))
        return unpacked.value

    def _rest(self, missing: int) -> bytes:
        """Return what was missing of a header."""
        if not missing:
            return b""
        rest = torch.empty(missing, dtype=torch.uint8)
        self._wait([self._receiving(rest)])
        return rest.numpy().tobytes()

    def _receiving(self, piece: Tensor) -> Started:
        try:
            return self._transport.receive(piece, self.peer, self._tag), piece
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error
