"""Processes that take their CPU for a GPU: streams are simulated, and gloo stands for NCCL, group by group.

What is floating, but for single losses, counts as a GPU's, and so goes where a GPU's tensors go; headers do not.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroupGloo

from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.distributed import team
from executor.workers.distributed.mesh import CONTROL_TAG
from executor.workers.distributed.messages import codec
from executor.workers.distributed.messages.transport import GpuLane, Transport
from executor.workers.distributed.own_gpu import OwnGpu
from executor.workers.environment import process_number
from schedir.errors import RefusedError
from tests.distributed.programs import trainers, work
from tests.executor.cuda.streams import Machine

BYTES_OF, GROUP = codec.bytes_of, Transport._group
GROUPS: list[int] = []
"""How many members the groups have that stand for NCCL's, and how often they were shut down: 2, then 0."""
MADE_LATE: list[GpuLane] = []
"""Lanes of tasks whose groups were made when the first task had begun: that is when NCCL may wait for ever."""


class Done:
    """NCCL's work, as far as it is used: the host looks whether it is done, and only then asks for errors."""

    def __init__(self, work: Any) -> None:
        self._work, self._done = work, False

    def is_completed(self) -> bool:
        self._work.wait()
        self._done = True
        return True

    def wait(self, limit: timedelta) -> None:
        assert self._done, f"NCCL's own wait of {limit} cannot be broken off"


class Group:
    """NCCL's group, as far as it is used: two members, no tags."""

    class Options:
        _timeout = timedelta(minutes=10)
        is_high_priority_stream = False

    def __init__(self, store: Any, number: int, count: int, options: Options) -> None:  # noqa: PLR0917 - as torch has it
        assert options._timeout > timedelta(seconds=work.TIMEOUT_S), "it would give up before whoever waits"
        assert options.is_high_priority_stream, "it might get the stream that computes"
        self._gloo = ProcessGroupGloo(store, number, count, timedelta(seconds=work.TIMEOUT_S))
        GROUPS.append(count)

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Any:
        assert (peer, tag) == (1, 0)
        return Done(self._gloo.send(tensors, peer, tag))  # type: ignore[attr-defined]  # torch's stubs lack it

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Any:
        assert (peer, tag) == (0, 0)
        return Done(self._gloo.recv(tensors, peer, tag))  # type: ignore[attr-defined]  # torch's stubs lack it

    def shutdown(self) -> None:
        GROUPS.append(0)

    def abort(self) -> None:
        pass


def noted(self: Transport, lane: GpuLane) -> Any:
    """Make a group; note whether it comes late. (States of stages, which go by the words of control, lie on the host in truth.)"""
    if lane[2] != CONTROL_TAG and any(thread.name.startswith("device ") for thread in threading.enumerate()):
        MADE_LATE.append(lane)
    return GROUP(self, lane)


def is_big(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.ndim > 0


def on_gpu(tensor: Tensor) -> bool:
    return bool(getattr(tensor, "shows_gpu", is_big(tensor)))


def marked_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes, marked by where they are."""
    found: Any = BYTES_OF(tensor)
    found.shows_gpu = is_big(tensor)
    return found  # type: ignore[no-any-return]  # a tensor


@contextmanager
def gpus() -> Iterator[None]:
    machine = Machine()

    def own(_: list[nn.Module], *, timeout_s: float) -> OwnGpu:
        return OwnGpu(Gpu(torch.device("cuda", process_number()), machine), Patience(timeout_s))

    with (
        patch.object(team, "own_gpu", own),
        patch.object(codec, "bytes_of", marked_bytes),
        patch.object(torch.Tensor, "is_cuda", property(on_gpu)),
        patch.object(torch.distributed, "ProcessGroupNCCL", Group, create=True),
        patch.object(Transport, "_group", noted),
    ):
        yield


def sharing() -> str:
    """Train where both processes compute on one card; return what is said."""
    with gpus(), patch.object(Machine, "identity", lambda *_: "GPU-1"):
        try:
            work.trained(("1f1b", 2, 2, {}), "distributed")
        except RefusedError as error:
            return str(error)
    return "nothing"


@dataclass
class Known:
    """What one process knows at the end."""

    found: list[work.Found]
    steps: list[trainers.Trained]
    groups: list[int]
    made_late: list[GpuLane]
    sharing: str


def everything(setups: list[work.Setup], steps: list[trainers.Setup]) -> Known:
    with gpus():
        found = work.all_trained(setups), [trainers.step_by_step(setup, "distributed") for setup in steps]
    return Known(*found, GROUPS, MADE_LATE, sharing())
