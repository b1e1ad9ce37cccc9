"""The sending end of a lane, with a transport that keeps what is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from executor.workers.distributed.messages.lanes import Outgoing

LONG_S = 300.0


class Work:
    """Something on its way; it arrives when the test says so."""

    def __init__(self, may: threading.Event) -> None:
        self._may = may

    def wait(self, _: object) -> None:
        assert self._may.wait(LONG_S)


class Transport:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []
        self.may = threading.Event()

    @contextmanager
    def enter(self) -> Iterator[None]:
        yield

    def send(self, part: Tensor, peer: int, tag: int) -> Any:
        assert part.is_contiguous()
        self.sent.append((peer, tag))
        return Work(self.may)

    def wait(self, work: Any, _: Tensor) -> None:
        work.wait(None)


def lane(transport: Transport) -> tuple[Outgoing, list[BaseException]]:
    errors: list[BaseException] = []
    made = Outgoing(transport, 3, 1, broken=lambda _, error: errors.append(error))  # type: ignore[arg-type]  # all that it uses
    made.start()
    return made, errors


def test_a_lane_that_is_closed_sends_what_it_has_and_a_farewell() -> None:
    transport = Transport()
    made, errors = lane(transport)
    made.send((1, 0), "first")
    made.send((2, 0), "second")
    made.close()
    transport.may.set()

    assert made.join(LONG_S)
    assert errors == []
    assert transport.sent == [(3, 1)] * 3


def test_a_lane_that_is_abandoned_ends_without_a_farewell() -> None:
    """A send that meets the end of its connection may never return."""
    transport = Transport()
    made, errors = lane(transport)
    made.abandon()

    assert made.join(LONG_S)
    assert (errors, transport.sent) == ([], [])


def test_a_lane_that_is_abandoned_while_it_sends_begins_nothing_more() -> None:
    transport = Transport()
    made, errors = lane(transport)
    made.send((1, 0), "first")
    made.send((2, 0), "second")
    made.abandon()
    made.send((3, 0), "third")
    transport.may.set()

    assert made.join(LONG_S)
    assert errors == []
    assert transport.sent == [(3, 1)]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_value_is_taken_apart_and_its_span_begun_once(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies on a GPU is sent by the lane's own thread, on whose stream it is read."""
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda tensor: on_gpu and tensor.is_floating_point()))
    transport, begun = Transport(), list[str]()
    made, errors = lane(transport)
    made.send((1, 0), (torch.ones(3), None), begin=lambda: begun.append(threading.current_thread().name))
    made.close()
    transport.may.set()

    assert made.join(LONG_S)
    assert errors == []
    assert begun == ["send to 3, lane 1" if on_gpu else threading.current_thread().name]
    assert len(transport.sent) == (2 if on_gpu else 1) + 1  # its header and its tensor, or both in one; the farewell
