"""What carries memory from process to process: gloo for the host's memory, NCCL for a GPU's.

Gloo tells messages apart by tag, so one group serves all lanes. NCCL knows no tags and does one thing after the other on a
connection: each direction of each lane has a group of its own, made when first used: by the sender, and by the receiver when the
header, which goes over gloo, says that tensors of a GPU follow. So no kernel of NCCL waits long for its other end. NCCL has not
been run here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed import start

FOREVER = timedelta(days=7)
"""Given to gloo, which breaks all connections when a wait of its own ends; every wait of ours has its own limit."""
_WAKE_UP = timedelta(milliseconds=1)
_WAKE_UP_TAG = 2**30


class Transport:
    """Connections to all other processes."""

    def __init__(
        self,
        run: str,
        number: int,
        count: int,
        *,
        timeout_s: float,
        enter: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Connect, under a name that this run alone has; raise ConnectionError if a process does not within the limit.

        Torch waits in C++ here.
        """
        self._run, self._number = run, number
        self.enter = enter
        """Makes the context in which a lane's thread lives: its GPU and stream, if there is one."""
        self.peers = [peer for peer in range(count) if peer != number]
        try:
            store = PrefixStore(run, start.store())
            self._gloo: Any = ProcessGroupGloo(store, number, count, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise ConnectionError(" ".join(str(error).split())[:200]) from error
        self._on_gpus: dict[tuple[int, int, int], Any] = {}

    def send(self, part: Tensor, peer: int, tag: int) -> Any:
        """Start to send memory to a process; return the work to wait for."""
        if part.is_cuda:
            return self._on_gpu(self._number, peer, tag=tag).send([part], 1, 0)
        return self._gloo.send([part], peer, tag)

    def receive(self, part: Tensor, peer: int, tag: int) -> Any:
        """Start to fill memory from a process; return the work to wait for."""
        if part.is_cuda:
            return self._on_gpu(peer, self._number, tag=tag).recv([part], 0, 0)
        return self._gloo.recv([part], peer, tag)

    def close(self) -> None:
        """Let NCCL end; all that was sent is received."""
        for group in tuple(self._on_gpus.values()):  # a lane's thread may still make one
            group.shutdown()

    def break_off(self) -> None:
        """Wake everybody who waits for gloo with an error.

        Gloo cannot cancel a wait, but breaks all connections of a group when one wait of it runs out of time.
        """
        for peer in self.peers:
            try:
                self._gloo.recv([torch.empty(1, dtype=torch.uint8)], peer, _WAKE_UP_TAG).wait(_WAKE_UP)
            except RuntimeError:
                continue
        for group in tuple(self._on_gpus.values()):
            group.abort()

    def _on_gpu(self, sender: int, receiver: int, *, tag: int) -> Any:
        lane = sender, receiver, tag
        if lane not in self._on_gpus:
            from torch.distributed import ProcessGroupNCCL  # noqa: PLC0415 - only where torch has it

            # A client of its own: one answers one question after the other. With one for all, two lanes of opposite directions
            # wait for ever: each receiver asks for what the sender beside it cannot say until the question is answered.
            store = PrefixStore(f"{self._run}/nccl/{sender}-{receiver}-{tag}", start.second_client())
            number = 0 if sender == self._number else 1
            self._on_gpus[lane] = ProcessGroupNCCL(store, number, 2, ProcessGroupNCCL.Options())
        return self._on_gpus[lane]


def wait(work: Any, part: Tensor) -> None:
    """Return when a part is sent or received."""
    work.wait(FOREVER)
    if part.is_cuda:  # the work has only been put into the stream
        torch.cuda.current_stream().synchronize()
