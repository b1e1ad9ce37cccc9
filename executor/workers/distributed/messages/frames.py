"""A message in the pieces that go over a lane: one, as long as it fits into what the receiver holds ready.

    | length | header .......... | tensor | tensor |      whole: one piece of at most `room` bytes, tensors at multiples of ALIGNED
    | -length | header (or its first part) |  | rest of the header |  | tensor |  | tensor |            apart: several

Gloo sends nothing before the receiver has said where to put it, so a receiver that has to read a header first costs a round trip
between four threads. Room for the next message is ready before it comes: as much as the largest so far took, up to LARGEST, which
both ends know. Larger tensors, and those of a GPU, go apart, without a copy; there the memory itself takes the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import memmove
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.workers.distributed.messages.codec import Memory, Packed, Unpacked, unpack

LEAST = 1024
"""Bytes of room for the first message."""
LARGEST = 2**19
ALIGNED = 64
"""What kernels that compute with vectors want their operands to begin at."""
_LENGTH = 8


@dataclass(slots=True)
class MessageRoom:
    """How many bytes the receiver of a lane holds ready for the next message; each end counts for itself."""

    size: int = LEAST

    def grow(self, needed: int) -> None:
        """Take note of what a message needed, or would have."""
        self.size = max(self.size, min(needed, LARGEST))


def needed_for(header_length: int, tensors: Iterable[Tensor]) -> int:
    """Return how many bytes a message takes as a whole."""
    return _begin(header_length) + sum(_aligned(tensor.nbytes) for tensor in tensors)


def framed(packed: Packed, room: int) -> list[Tensor]:
    """Return the pieces of a message, in the order in which they are sent."""
    needed = needed_for(len(packed.header), packed.tensors)
    if needed > room or any(tensor.is_cuda for tensor in packed.tensors):
        text = torch.frombuffer(bytearray(_length(-len(packed.header)) + packed.header), dtype=torch.uint8)
        # the receiver holds `room` bytes ready and not one more: what is left of a long header is asked for by its length
        return [text[:room], *([text[room:]] if len(text) > room else []), *packed.parts]
    whole = torch.empty(needed, dtype=torch.uint8)
    # Not by tensors' own slices and copies: those take 0.1 ms where a task has emptied the caches.
    start, memory = whole.data_ptr(), Memory(whole.untyped_storage(), _begin(len(packed.header)), ALIGNED)
    memmove(start, _length(len(packed.header)) + packed.header, _LENGTH + len(packed.header))
    for tensor in packed.tensors:  # dense, so its memory is one row of bytes
        memmove(start + memory.take(tensor.nbytes), tensor.data_ptr(), tensor.nbytes)
    return [whole]


@dataclass(frozen=True, slots=True)
class Opened:
    """What the first piece of a message says."""

    header: bytes
    """As far as it is there."""
    missing: int
    """Bytes of the header that come in a second piece."""
    is_whole: bool
    """The tensors are in it, behind the header."""


def opened(piece: Tensor) -> Opened:
    """Read the first piece of a message."""
    first: memoryview[int] = piece.numpy().data
    length = int.from_bytes(first[:_LENGTH], "little", signed=True)
    header = bytes(first[_LENGTH : _LENGTH + abs(length)])
    return Opened(header, abs(length) - len(header), length >= 0)


def whole_value(header: bytes, piece: Tensor) -> Unpacked:
    """Return the value of a whole message; its tensors lie in the piece."""
    return unpack(header, Memory(piece.untyped_storage(), _begin(len(header)), ALIGNED))


def _length(length: int) -> bytes:
    return length.to_bytes(_LENGTH, "little", signed=True)


def _begin(header_length: int) -> int:
    """Return where the tensors begin in a whole message."""
    return _aligned(_LENGTH + header_length)


def _aligned(count: int) -> int:
    return -(-count // ALIGNED) * ALIGNED
