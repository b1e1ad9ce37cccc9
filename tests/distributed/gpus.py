"""Processes that take their CPU for a GPU: streams are simulated, and gloo stands for NCCL, group by group.

What is floating counts as a GPU's, and so goes where a GPU's tensors go; headers do not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroupGloo

from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.distributed import codec, team
from executor.workers.distributed.own_gpu import OwnGpu
from tests.distributed import trainers, work
from tests.executor.cuda.streams import Machine

BYTES_OF = codec.bytes_of
GROUPS: list[int] = []
"""How many members the groups have that stand for NCCL's, and how often they were shut down: 2, then 0."""


class Group:
    """NCCL's group, as far as it is used: two members, no tags."""

    class Options:
        pass

    def __init__(self, store: Any, number: int, count: int, _: Options) -> None:
        self._gloo = ProcessGroupGloo(store, number, count, timedelta(seconds=work.TIMEOUT_S))
        GROUPS.append(count)

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Any:
        assert (peer, tag) == (1, 0)
        return self._gloo.send(tensors, peer, tag)  # type: ignore[attr-defined]  # torch's stubs lack it

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Any:
        assert (peer, tag) == (0, 0)
        return self._gloo.recv(tensors, peer, tag)  # type: ignore[attr-defined]  # torch's stubs lack it

    def shutdown(self) -> None:
        GROUPS.append(0)

    def abort(self) -> None:
        pass


def on_gpu(tensor: Tensor) -> bool:
    return bool(getattr(tensor, "shows_gpu", tensor.is_floating_point()))


def marked_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes, marked by where they are."""
    found: Any = BYTES_OF(tensor)
    found.shows_gpu = tensor.is_floating_point()
    return found  # type: ignore[no-any-return]  # a tensor


@contextmanager
def gpus() -> Iterator[None]:
    machine = Machine()

    def own(_: list[nn.Module], *, timeout_s: float) -> OwnGpu:
        return OwnGpu(Gpu(torch.device("cuda", 0), machine), Patience(timeout_s))

    with (
        patch.object(team, "own_gpu", own),
        patch.object(codec, "bytes_of", marked_bytes),
        patch.object(torch.Tensor, "is_cuda", property(on_gpu)),
        patch.object(torch.distributed, "ProcessGroupNCCL", Group, create=True),
        patch.object(torch.cuda, "current_stream"),
    ):
        yield


def everything(setups: list[work.Setup], steps: list[trainers.Setup]) -> tuple[list[work.Found], list[trainers.Trained], list[int]]:
    with gpus():
        return work.all_trained(setups), [trainers.step_by_step(setup, "distributed") for setup in steps], GROUPS
