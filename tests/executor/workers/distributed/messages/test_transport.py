"""What NCCL is asked for, with groups that only say what is asked; the connections themselves are in test_gpu_processes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from executor.workers.distributed.meeting.limits import ended_after, nccl_after
from executor.workers.distributed.messages.transport import GpuLane, Transport
from executor.workers.distributed.workers import SHARES, TRANSFERS, gpu_lanes
from schedir.errors import RefusedError
from tests.executor.small.models import compiled

LONG_S = 300.0


class Work:
    """A hand-over between GPUs, done when the test says so."""

    def __init__(self, *, done: bool) -> None:
        self.done = done
        self.looked = threading.Event()

    def is_completed(self) -> bool:
        self.looked.set()
        return self.done

    def wait(self, _: object) -> None:
        assert self.done


class Group:
    """NCCL's group of a lane, which notes what it is asked for."""

    def __init__(self, lane: GpuLane, asked: list[tuple[str, GpuLane]]) -> None:
        self._lane, self._asked = lane, asked

    def send(self, *_: object) -> Work:
        self._asked.append(("send", self._lane))
        return Work(done=True)

    def recv(self, *_: object) -> Work:
        self._asked.append(("receive", self._lane))
        return Work(done=True)

    def abort(self) -> None:
        self._asked.append(("abort", self._lane))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, GpuLane]]:
    found: list[tuple[str, GpuLane]] = []
    monkeypatch.setattr(Tensor, "is_cuda", property(Tensor.is_floating_point))
    monkeypatch.setattr(Transport, "_group", lambda _, lane: Group(lane, found))
    return found


def transport(number: int, *, hand_over_s: float = LONG_S) -> Transport:
    """Return one process's, without connections."""
    made = object.__new__(Transport)
    values: dict[str, Any] = {"_number": number, "_hand_over_s": hand_over_s, "_on_gpus": {}, "_broken_off": False, "peers": []}
    vars(made).update(values)
    return made


LINKS: list[GpuLane] = [(0, 1, 1), (1, 2, 1), (2, 3, 1), (1, 0, 1), (2, 1, 1), (3, 2, 1), (0, 3, 2), (3, 0, 2)]


def test_connections_are_made_in_one_order_and_neighbours_two_by_two(asked: list[tuple[str, GpuLane]]) -> None:
    """0-1 and 2-3 at the same time, then 1-2, then those who are no neighbours."""
    transport(2).connect_gpus(LINKS, torch.device("cpu"))
    assert asked == [("send", (2, 3, 1)), ("receive", (3, 2, 1)), ("receive", (1, 2, 1)), ("send", (2, 1, 1))]
    asked.clear()
    transport(3).connect_gpus(LINKS, torch.device("cpu"))
    assert asked == [("receive", (2, 3, 1)), ("send", (3, 2, 1)), ("receive", (0, 3, 2)), ("send", (3, 0, 2))]


def test_more_connections_than_torch_has_streams_are_refused(asked: list[tuple[str, GpuLane]]) -> None:
    lanes = [(0, peer, 1) for peer in range(1, 34)]
    with pytest.raises(RefusedError, match=r"^process 0 hands tensors over on 33 connections of NCCL, and torch has 32 streams"):
        transport(0).connect_gpus(lanes, torch.device("cpu"))
    assert asked == []


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("looks_done", [False, True])
def test_a_hand_over_that_is_broken_off_ends_with_an_error_though_it_may_look_done(looks_done: bool) -> None:
    made, work, errors = transport(0), Work(done=False), list[str]()

    def wait() -> None:
        try:
            made.wait(work, torch.ones(1))
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    assert work.looked.wait(LONG_S)
    made.break_off()
    work.done = looks_done  # as NCCL says of what was aborted, once its kernel has ended
    thread.join(LONG_S)
    assert errors == ["the connection was broken off"]


def test_breaking_off_aborts_every_connection_once_and_none_is_made_afterwards(asked: list[tuple[str, GpuLane]]) -> None:
    made, part = transport(0), torch.ones(1)
    made.send(part, 1, 1)
    made.break_off()
    made.break_off()
    with pytest.raises(RuntimeError, match="broken off"):
        made.send(part, 1, 1)
    assert asked == [("send", (0, 1, 1)), ("abort", (0, 1, 1))]


@pytest.mark.usefixtures("asked")
def test_a_hand_over_that_never_ends_is_given_up() -> None:
    with pytest.raises(RuntimeError, match=r"^NCCL has not handed over a tensor within 0 s$"):
        transport(0, hand_over_s=0.0).wait(Work(done=False), torch.ones(1))


@pytest.mark.parametrize("timeout_s", [1.0, 600.0, 7200.0])
def test_nccl_gives_up_behind_everybody_who_waits(timeout_s: float) -> None:
    """Its own limit would be ten minutes, whatever was said."""
    assert nccl_after(timeout_s) == timeout_s + ended_after(timeout_s)


def test_lanes_of_a_graph_are_its_links_and_those_between_replicas() -> None:
    assert gpu_lanes(compiled("1f1b", 3, 4)) == [(0, 1, TRANSFERS), (1, 0, TRANSFERS), (1, 2, TRANSFERS), (2, 1, TRANSFERS)]
    links = {(0, 1, TRANSFERS), (1, 0, TRANSFERS)}
    assert set(gpu_lanes(compiled("chimera", 2, 4))) == links | {(0, 1, SHARES), (1, 0, SHARES)}
