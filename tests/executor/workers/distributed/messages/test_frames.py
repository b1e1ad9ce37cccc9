"""Messages in pieces: one where there is room, several where there is not, and both ends count the room alike."""

from typing import Any

import pytest
import torch
from torch import Tensor

from executor.boundary import Message
from executor.workers.distributed.messages.codec import pack, unpack
from executor.workers.distributed.messages.frames import (
    ALIGNED,
    LARGEST,
    LEAST,
    MessageRoom,
    framed,
    needed_for,
    opened,
    whole_value,
)


def received(pieces: list[Tensor], room: int) -> Any:
    """Return the value of a message as a lane's receiver makes it, who holds `room` bytes ready."""
    ready = torch.full((room,), 255, dtype=torch.uint8)  # a receiver's memory holds anything
    ready[: len(pieces[0])] = pieces[0]
    first = opened(ready)
    if first.is_whole:
        assert len(pieces) == 1
        return whole_value(first.header, ready).value
    rest = bytes(pieces[1].tolist()) if first.missing else b""
    assert len(rest) == first.missing
    unpacked = unpack(first.header + rest)
    for there, here in zip(unpacked.parts, pieces[2 if first.missing else 1 :], strict=True):
        there.copy_(here)
    return unpacked.value


MESSAGE = Message((torch.arange(60.0).reshape(3, 20), torch.tensor([True, False, True])), (True, False))


@pytest.mark.parametrize(("room", "num_pieces"), [(LEAST, 1), (LARGEST, 1), (64, 4), (8, 4), (300, 3)])
def test_a_message_arrives_whatever_room_there_is(room: int, num_pieces: int) -> None:
    """In pieces: the header (184 bytes with its length), if need be its rest, and two tensors."""
    pieces = framed(pack(((7, 0), MESSAGE)), room)
    key, found = received(pieces, room)

    assert len(pieces) == num_pieces
    assert key == (7, 0)
    assert found.needs_grad == (True, False)
    assert all(map(torch.equal, found.tensors, MESSAGE.tensors))


def test_what_fits_is_known_to_the_byte() -> None:
    packed = pack(MESSAGE)
    needed = needed_for(len(packed.header), packed.tensors)

    assert [len(piece) for piece in framed(packed, needed)] == [needed]
    assert len(framed(packed, needed - 1)) == 3


def test_tensors_that_go_apart_are_not_copied() -> None:
    tensor = torch.ones(LEAST)

    assert framed(pack(tensor), LEAST)[-1].data_ptr() == tensor.data_ptr()


def test_tensors_of_one_piece_are_aligned_and_count_their_changes_apart() -> None:
    first, second = received(framed(pack((torch.ones(3), torch.zeros(5))), LEAST), LEAST)
    before = second._version
    first.add_(1)

    assert first.data_ptr() % ALIGNED == second.data_ptr() % ALIGNED == 0
    assert second._version == before
    assert second.tolist() == [0.0] * 5


def test_memory_formats_types_and_sparse_tensors_arrive_in_one_piece() -> None:
    values = (
        torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
        torch.arange(6).reshape(2, 3).T.to(torch.bfloat16),
        torch.empty(0, 4),
        torch.tensor([1 + 2j]).conj(),
    )
    sparse = torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    *found, arrived = received(framed(pack((*values, sparse)), LARGEST), LARGEST)

    assert all(map(torch.equal, found, values))
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(arrived.to_dense(), sparse.to_dense())


def test_room_grows_to_the_largest_message_so_far_within_limits() -> None:
    room = MessageRoom()
    sizes = []
    for needed in (10, 5000, 2000, LARGEST + 1):
        room.grow(needed)
        sizes.append(room.size)

    assert sizes == [LEAST, 5000, 5000, LARGEST]


@pytest.mark.parametrize("room", [LEAST, LARGEST])
def test_both_ends_count_alike(room: int) -> None:
    """The sender from what it packed, the receiver from what it has opened, be it whole or apart."""
    packed = pack(((1, 0), (torch.ones(700), None, torch.zeros(2, 2).T)))
    unpacked = unpack(packed.header)

    assert needed_for(len(packed.header), packed.tensors) == needed_for(len(packed.header), unpacked.tensors)
    assert len(framed(packed, room)) == (1 if room == LARGEST else 3)
