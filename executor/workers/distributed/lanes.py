"""One direction of a link between two processes: a thread that sends on one side, a thread that receives on the other.

    compute lane ── send(key, value) ──▶ queue ──▶ sending thread ══ gloo ══▶ receiving thread ── deliver(key, value) ──▶ slot

Putting a value into the queue never blocks, whatever the other side does; values keep their order; a buffer is held until it is
sent. A receiver always listens, so a sender never waits for a computation: a graph whose order is verified cannot deadlock.

A message is a block of fixed size with the header, more bytes if the header is longer, then the tensors' memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from executor.workers.distributed.codec import pack, unpack
from executor.workers.distributed.transport import Transport, enter_thread, wait

BLOCK = 1024
"""Bytes of the first part of a message."""
_LENGTH = 8
POLL_S = 0.05

Key = tuple[int, int]
"""(task, part) of a value; negative tasks are for control."""
Deliver = Callable[[Key, Any], None]
Broken = Callable[[int, BaseException], None]
"""Called with the number of the process at the other end; a ConnectionError says that it is gone."""


class _Lane:
    """What both ends have in common: a thread that serves until the lane is closed or breaks."""

    def __init__(self, transport: Transport, peer: int, tag: int, *, broken: Broken, name: str) -> None:
        self._transport, self.peer, self._tag, self._broken = transport, peer, tag, broken
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _guarded(self) -> None:
        try:
            enter_thread()
            self._serve()
        except BaseException as error:  # noqa: BLE001 - whatever it is, somebody waits for what will not come
            self._broken(self.peer, error)

    def _serve(self) -> None:
        raise NotImplementedError

    @staticmethod
    def _finish(start: Callable[[Tensor], Any], parts: list[Tensor]) -> None:
        """Start all parts, then wait for all; raise ConnectionError."""
        try:
            # all parts are started first: each wait for one would be a round trip
            for work, part in [(start(part), part) for part in parts]:
                wait(work, part)
        except RuntimeError as error:  # gloo has no type of its own
            raise ConnectionError(str(error)) from error


class Outgoing(_Lane):
    """The sending end."""

    def __init__(self, transport: Transport, peer: int, tag: int, *, broken: Broken) -> None:
        super().__init__(transport, peer, tag, broken=broken, name=f"send to {peer}, lane {tag}")
        self._orders: SimpleQueue[tuple[Key, Any, Callable[[], Any] | None] | threading.Event | None] = SimpleQueue()

    def send(self, key: Key, value: object, *, begin: Callable[[], Any] | None = None) -> None:
        """Send a value after all that were given before; never blocks. `begin` is called when its turn comes; what it returns,
        if anything, is sent instead.
        """
        self._orders.put((key, value, begin))

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything given so far is sent; return whether it was within the limit."""
        reached, limit = threading.Event(), monotonic() + timeout_s
        self._orders.put(reached)
        while not reached.wait(POLL_S):
            if monotonic() > limit or not self._thread.is_alive():
                return False
        return True

    def close(self) -> None:
        """Let the thread end when all is sent; the other end hears of it."""
        self._orders.put(None)

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            if isinstance(order, threading.Event):
                order.set()
                continue
            key, value, begin = order
            made = begin() if begin is not None else None
            self._send((key, value if made is None else made))
            # or this thread would hold a sent value for as long as it waits for the next
            del order, value, made
        self._send(None)

    def _send(self, content: object) -> None:
        packed = pack(content)
        header = torch.frombuffer(bytearray(len(packed.header).to_bytes(_LENGTH, "little") + packed.header), dtype=torch.uint8)
        #   | length | header ........ 0 0 0 |  | rest of a longer header |  | tensor | tensor |
        #   |-------- BLOCK bytes -----------|   a receiver knows how much comes next from what it has
        block = torch.zeros(BLOCK, dtype=torch.uint8)
        block[: len(header)] = header[:BLOCK]
        parts = [block, *([header[BLOCK:]] if len(header) > BLOCK else []), *packed.parts]
        self._finish(lambda part: self._transport.send(part, self.peer, self._tag), parts)


class Incoming(_Lane):
    """The receiving end."""

    def __init__(self, transport: Transport, peer: int, tag: int, *, broken: Broken, deliver: Deliver) -> None:
        super().__init__(transport, peer, tag, broken=broken, name=f"receive from {peer}, lane {tag}")
        self._deliver = deliver

    def _serve(self) -> None:
        block = torch.empty(BLOCK, dtype=torch.uint8)
        while (content := self._receive(block)) is not None:
            self._deliver(*content)
            # or this thread would hold a value until the next one has come
            del content

    def _receive(self, block: Tensor) -> Any:
        self._fill([block])
        first = block.numpy().tobytes()
        length = int.from_bytes(first[:_LENGTH], "little")
        header = first[_LENGTH : _LENGTH + length]
        if len(header) < length:
            rest = torch.empty(length - len(header), dtype=torch.uint8)
            self._fill([rest])
            header += rest.numpy().tobytes()
        unpacked = unpack(header)
        self._fill(unpacked.parts)
        return unpacked.value

    def _fill(self, parts: list[Tensor]) -> None:
        self._finish(lambda part: self._transport.receive(part, self.peer, self._tag), parts)
