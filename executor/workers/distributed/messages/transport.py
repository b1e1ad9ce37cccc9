"""What carries memory from process to process: gloo for the host's memory, NCCL for a GPU's.

Gloo tells messages apart by tag, so one group serves all lanes. NCCL knows no tags and does one thing after the other on a
connection: each direction of each lane has a group of its own. The receiver hears by a header, which goes over gloo, that tensors
of a GPU follow; so no kernel of NCCL waits long for its other end.

A kernel of NCCL that waits may keep another connection from being made, here and there, so that two processes wait for each other
for ever (NCCL's guide, "Using multiple NCCL communicators concurrently"). So all connections that a graph uses are made before its
first task, by all processes in one order; the others when they are first used. NCCL has not been run here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.cuda.gpu import POOL
from executor.workers.cuda.patience import PAUSE_S
from executor.workers.distributed.meeting import start
from executor.workers.distributed.meeting.addresses import listening_address, listening_text
from executor.workers.distributed.meeting.start import Participant
from schedir.errors import RefusedError

GpuLane = tuple[int, int, int]
"""(sender, receiver, tag) of tensors between GPUs."""
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
        members: Sequence[Participant],
        *,
        timeout_s: float,
        hand_over_s: float,
        enter: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Connect, under a name that this run alone has; raise ConnectionError if a process does not within the limit.

        NCCL gives a hand-over up after `hand_over_s`. Torch waits in C++ here.
        """
        self._run, self._number, self._hand_over_s = run, number, hand_over_s
        self.enter = enter
        """Makes the context in which a lane's thread lives: its GPU and stream, if there is one."""
        others = [member for member in members if member.number != number]
        self.peers = [member.number for member in others]
        address = listening_address(members[number].address, [member.address for member in others])
        try:
            store = PrefixStore(run, start.store())
            self._gloo: Any = ProcessGroupGloo(store, number, len(members), _how_to_connect(address, timeout_s))
        except RuntimeError as error:
            raise ConnectionError(f"{' '.join(str(error).split())[:200]}; {listening_text(address)}") from error
        self._on_gpus: dict[GpuLane, Any] = {}
        self._broken_off = False

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

    def wait(self, work: Any, part: Tensor) -> None:
        """Return when a part is sent or received; raise RuntimeError if its connection broke."""
        if part.is_cuda:
            self._await_nccl(work)
        work.wait(FOREVER)

    def _await_nccl(self, work: Any) -> None:
        """Return when NCCL is done; its own wait would only put the work into this thread's stream, or could not be broken off."""
        limit = monotonic() + self._hand_over_s
        # what was broken off looks as if it had arrived, sooner or later
        while not self._broken_off and not work.is_completed():
            if monotonic() > limit:
                raise RuntimeError(f"NCCL has not handed over a tensor within {self._hand_over_s:g} s")
            sleep(PAUSE_S)
        if self._broken_off:
            raise RuntimeError("the connection was broken off")

    def connect_gpus(self, lanes: Sequence[GpuLane], device: torch.device) -> None:
        """Make this process's connections of some lanes, with a first number over each; all processes give all lanes alike.

        Raises RefusedError if they are more than NCCL may have at once, ConnectionError if one is not made.
        """
        own = [lane for lane in sorted(lanes, key=_round) if self._number in lane[:2]]
        if len(own) > POOL:
            raise RefusedError(
                f"process {self._number} hands tensors over on {len(own)} connections of NCCL, and torch has {POOL} streams for "
                "them, on which they would wait for each other for ever: use fewer replicas, or leave the model on the CPU"
            )
        first = torch.zeros(1, device=device)
        try:
            for sender, receiver, tag in own:
                sends = sender == self._number
                self.wait(self.send(first, receiver, tag) if sends else self.receive(first, sender, tag), first)
        except RuntimeError as error:
            raise ConnectionError(" ".join(str(error).split())[:200]) from error

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
        self._broken_off = True
        for lane in tuple(self._on_gpus):  # a lane's thread may still make one: this is called again
            self._on_gpus.pop(lane).abort()

    def _on_gpu(self, sender: int, receiver: int, *, tag: int) -> Any:
        lane = sender, receiver, tag
        if lane not in self._on_gpus:  # used by one thread
            if self._broken_off:
                raise RuntimeError("the connections were broken off")
            self._on_gpus[lane] = self._group(lane)
        return self._on_gpus[lane]

    def _group(self, lane: GpuLane) -> Any:
        """Return a group of NCCL for a lane; it does not wait for its other end yet."""
        from torch.distributed import ProcessGroupNCCL  # noqa: PLC0415 - only where torch has it

        sender, receiver, tag = lane
        # A client of its own: one answers one question after the other. With one for all, two lanes of opposite directions
        # wait for ever: each receiver asks for what the sender beside it cannot say until the question is answered.
        store = PrefixStore(f"{self._run}/nccl/{sender}-{receiver}-{tag}", start.second_client())
        options = ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=self._hand_over_s)
        # from another pool than ours: torch hands streams out in turn, so NCCL might get the very one that computes
        options.is_high_priority_stream = True
        return ProcessGroupNCCL(store, 0 if sender == self._number else 1, 2, options)


def _how_to_connect(address: str, timeout_s: float) -> Any:
    """Return gloo's options, or just the limit where torch's variables shall say on which address it listens."""
    limit = timedelta(seconds=timeout_s)
    if not address:
        return limit
    gloo: Any = ProcessGroupGloo  # torch's stubs lack both
    options = gloo._Options()
    options._timeout = limit
    options._devices = [gloo.create_device(hostname=address)]
    return options


def _round(lane: GpuLane) -> tuple[int, ...]:
    """Return what orders lanes so that neighbours connect two by two: 0-1 and 2-3 at the same time, then 1-2 and 3-4."""
    low, high = sorted(lane[:2])
    return (low % 2 if high == low + 1 else 2, low, high, *lane)
