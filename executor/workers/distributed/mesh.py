"""The connections of one run: process groups of torch, the lanes on them, the watch, and the words of control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import monotonic
from typing import Any

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed.exchange.control import Control
from executor.workers.distributed.meeting import start
from executor.workers.distributed.meeting.interruptible import interruptible
from executor.workers.distributed.meeting.limits import BREAK_OFF_S, come_after, connected_after, lost_after, nccl_after
from executor.workers.distributed.meeting.start import Participant
from executor.workers.distributed.messages.lanes import Deliver, Incoming, Key, Outgoing
from executor.workers.distributed.messages.transport import GpuLane, Transport
from executor.workers.distributed.watching.causes import error_of
from executor.workers.distributed.watching.watch import Watch
from executor.workers.environment import place
from schedir.errors import RunError

CONTROL_TAG = 0
BREAK_S = 0.5


class Mesh:
    """All that connects this process with the others, from `open` to `close` or `break_off`."""

    def __init__(
        self,
        run: str,
        members: tuple[Participant, ...],
        *,
        timeout_s: float,
        enter: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """`enter`: the context in which the threads of all lanes live."""
        self.number, self.members = place().number, members
        # a client of its own: this process may wait for the store while the watch goes on
        self.watch = Watch(self.number, members, PrefixStore(run, start.second_client()), lost_s=lost_after(timeout_s))
        self.control = Control(self.number, len(members), self.watch, timeout_s=timeout_s)
        self._run, self._timeout_s, self._enter = run, timeout_s, enter
        self._transport: Transport | None = None
        self._outgoing: dict[tuple[int, int], Outgoing] = {}
        self._incoming: dict[tuple[int, int], Incoming] = {}
        self._receiver: Deliver | None = None

    def open(self) -> None:
        """Connect all processes; raise RunError if one does not come, or the cause that the watch knows by then."""
        limit_s = connected_after(self._timeout_s)
        try:
            self._transport = interruptible(
                self._connected,
                about=lambda: f"process {self.number} waited for connections with the {len(self.members) - 1} others of the run",
                timeout_s=limit_s + BREAK_S,  # torch's own error comes first, and says more
                look=self._check,
            )
        except ConnectionError as error:
            self._check()
            raise RunError(f"the processes did not connect: {error}") from error
        # first what answers: a process that has connected earlier may ask for the time at once
        self.control.connect({peer: self._add_outgoing(peer, CONTROL_TAG) for peer in self.control.peers})
        for peer in self.control.peers:
            self._add_incoming(peer, CONTROL_TAG, partial(self.control.deliver, peer))

    def _connected(self) -> Transport:
        limits = {"timeout_s": connected_after(self._timeout_s), "hand_over_s": nccl_after(self._timeout_s)}
        return Transport(self._run, self.number, self.members, **limits, enter=self._enter)

    def connect_gpus(self, lanes: Sequence[GpuLane], device: torch.device) -> None:
        """Make what connects the GPUs, for all (sender, receiver, lane of a graph) that it uses; raise RunError if it cannot be."""
        assert self._transport is not None
        transport = self._transport
        tagged = [(sender, receiver, CONTROL_TAG + 1 + lane) for sender, receiver, lane in lanes]

        def connect() -> None:
            with self._enter():
                transport.connect_gpus(tagged, device)

        try:
            interruptible(
                connect,
                about=lambda: f"process {self.number} connected its GPU with those of the others by NCCL",
                timeout_s=come_after(self._timeout_s),
                look=self._check,
            )
        except ConnectionError as error:
            self._check()
            raise RunError(f"NCCL does not connect the GPU of process {self.number} with those of the others: {error}") from error

    def _check(self) -> None:
        """Raise the run's cause, if it has failed: nobody who is dead or stopped connects any more."""
        if self.watch.cause is not None:
            raise error_of(self.watch.cause)

    def serve(self, receiver: Deliver, describe: Callable[[int], str]) -> None:
        """Give what arrives on a graph's lanes to a receiver; `describe` gives the text of a task."""
        self._receiver, self.watch.describe = receiver, describe

    def outgoing(self, peer: int, lane: int) -> Outgoing:
        """Return the sending end of a lane of a graph."""
        return self._add_outgoing(peer, CONTROL_TAG + 1 + lane)

    def incoming(self, peer: int, lane: int) -> None:
        """Listen to a lane of a graph."""
        self._add_incoming(peer, CONTROL_TAG + 1 + lane, self._receive)

    def flush(self) -> None:
        """Return when all that was sent is on its way."""
        for lane in tuple(self._outgoing.values()):
            if not lane.flush(self._timeout_s) and self.watch.cause is None:
                raise RunError(f"{self.members[lane.peer]} took nothing in for {self._timeout_s:g} s")

    def close(self) -> None:
        """End in peace: every lane's end tells its other end."""
        for lane in self._outgoing.values():
            lane.close()
        # behind all of them: each end of a lane ends only with the other
        for end in self._lanes():
            self._await_end(end)
        if self._transport is not None:
            self._transport.close()
        self._leave()

    def _await_end(self, lane: Outgoing | Incoming) -> None:
        """Wait until a lane ends in peace; raise the run's cause, or RunError if its other end does not come to it."""
        limit = monotonic() + self._timeout_s
        while not lane.join(BREAK_S):
            self._check()
            if monotonic() > limit:
                raise RunError(f"{self.members[lane.peer]} did not end its run within {self._timeout_s:g} s after this one")

    def break_off(self) -> None:
        """End all lanes now, whatever they wait for."""
        for lane in self._outgoing.values():
            lane.abandon()
        limit = monotonic() + BREAK_OFF_S
        # again and again: a lane may begin its next wait right behind the one that was broken
        while self._transport is not None and monotonic() < limit:
            self._transport.break_off()
            if all(lane.join(BREAK_S) for lane in self._lanes()):
                break
        self._leave()

    def _lanes(self) -> list[Outgoing | Incoming]:
        return [*self._outgoing.values(), *self._incoming.values()]

    def _leave(self) -> None:
        self.watch.stop()
        self._transport = None

    def _receive(self, key: Key, value: Any) -> None:
        assert self._receiver is not None
        self._receiver(key, value)

    def _add_outgoing(self, peer: int, tag: int) -> Outgoing:
        if (peer, tag) not in self._outgoing:
            assert self._transport is not None
            lane = self._outgoing[peer, tag] = Outgoing(self._transport, peer, tag, broken=self.watch.broken)
            lane.start()
        return self._outgoing[peer, tag]

    def _add_incoming(self, peer: int, tag: int, deliver: Deliver) -> None:
        if (peer, tag) not in self._incoming:
            assert self._transport is not None
            lane = self._incoming[peer, tag] = Incoming(self._transport, peer, tag, broken=self.watch.broken, deliver=deliver)
            lane.start()
