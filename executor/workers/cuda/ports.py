"""Hand-overs between GPUs: the host hands over what has been enqueued, and the streams wait for each other by events.

thread of the sender                                        thread of the receiver
put: event behind what compute made                         take: the host waits for put, compute for the copy
     send waits for it and for the slot, copies     ──▶     free: event behind the last reader; the slot may be used again
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from executor.boundary import Message, special_kind
from executor.workers.base import ExchangePlan, Sink
from executor.workers.cuda.clock import CudaRecorder
from executor.workers.cuda.driver import Event
from executor.workers.cuda.gpu import Gpu, MemorySlot
from executor.workers.cuda.sparse import dense_parts, put_together
from executor.workers.ports import Slot, WaitFor
from schedir.errors import ArgumentError

Span = AbstractContextManager[None]


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of tensors on another GPU."""

    tensors: list[Tensor]
    slots: list[MemorySlot]
    """Where they lie; a sparse one in two."""
    arrived: Event | None
    """None before the first."""


def move(tensors: Sequence[Tensor], sender: Gpu, receiver: Gpu, *, made: Event, span: Span | None = None) -> Copies:
    """Enqueue copies of tensors that the sender has made behind an event; a span is recorded around them."""
    pieces = dense_parts(tensors)
    slots = [receiver.slots.take(piece) for piece in pieces]
    # the sending stream waits, so that compute of both GPUs goes on
    for event in (made, *(event for slot in slots for event in slot.free)):
        sender.send.wait_event(event)
    with sender.driver.current(receiver.receive(sender), sender.send), span or nullcontext():
        for slot, piece in zip(slots, pieces, strict=True):
            sender.driver.copy(slot.tensor, piece)
    sent = sender.send.record_event()
    sender.hold(pieces, until=sent)
    return Copies(put_together(tensors, [slot.tensor for slot in slots]), slots, sent)


_NOTHING = Copies([], [], None)


class PeerChannel(Slot):
    """A transfer from one GPU to another."""

    def __init__(self, wait_for: WaitFor, name: str, *, task: int, ends: tuple[Gpu, Gpu], recorder: CudaRecorder) -> None:
        super().__init__(wait_for, name)
        self._task, self._recorder = task, recorder
        self._sender, self._receiver = ends
        self._move = _NOTHING

    def put(self, value: Any) -> None:
        """Enqueue the copy of a message, or of gradients, and hand the copies over."""
        tensors = [tensor for tensor in parts(value) if tensor is not None]
        odd = next((kind for kind in map(special_kind, tensors) if kind not in {"", "sparse_coo"}), None)
        if odd is not None:
            raise ArgumentError(f"{self._name} holds a {odd} tensor, for which a GPU has no slot: make it a dense one")
        span = self._recorder.span(self._task, self._sender, self._sender.send)
        self._move = move(tensors, self._sender, self._receiver, made=self._sender.compute.record_event(), span=span)
        super().put(with_parts(value, self._move.tensors))

    def take(self) -> Any:
        """Return the value; the compute stream waits for its arrival."""
        value = super().take()
        self._receiver.compute.wait_event(self._move.arrived)
        return value

    def wait(self) -> None:
        """Return once the value is on its way; the compute stream waits for its arrival."""
        super().wait()
        self._receiver.compute.wait_event(self._move.arrived)

    def free(self) -> None:
        """Note that all readers of the value are enqueued."""
        self._receiver.slots.give_back(self._move.slots)
        self._move = _NOTHING


def parts(value: Any) -> Sequence[Tensor | None]:
    """Return the tensors of a message, or gradients, some of which may be None."""
    return value.tensors if isinstance(value, Message) else value


def with_parts(value: Any, tensors: Sequence[Tensor]) -> Any:
    """Return a value like `value` with other tensors in the places that are not None."""
    if isinstance(value, Message):
        return replace(value, tensors=tuple(tensors))
    rest = iter(tensors)
    return tuple(None if part is None else next(rest) for part in value)


class PeerReduction:
    """An exchange: the last of the members to come adds the values on its GPU and sends every taker the total."""

    def __init__(self, wait_for: WaitFor, plan: ExchangePlan, *, gpus: Sequence[Gpu], recorder: CudaRecorder) -> None:
        """`gpus` has the GPU of every device."""
        self._plan, self._recorder = plan, recorder
        self._members = [gpus[device] for device in plan.members]
        self._lock = threading.Lock()
        self._values: dict[int, tuple[Sequence[Tensor | None], Event]] = {}
        self._takers = [Taker(wait_for, plan.name, gpu) for gpu in (gpus[device] for device in plan.takers)]

    def member(self, number: int) -> Sink:
        """Return the sink of one member."""
        return _Member(self, number)

    def taker(self, number: int) -> Taker:
        """Return the source of one taker."""
        return self._takers[number]

    def add(self, number: int, value: Sequence[Tensor | None]) -> None:
        """Take one member's value, in its thread; the last one's makes the total."""
        made = self._members[number].compute.record_event()
        with self._lock:
            self._values[number] = (value, made)
            complete = len(self._values) == len(self._plan.members)
        # outside of the lock: everybody else has come, and goes on to wait for the total
        if complete:
            self._hand_out(self._members[number])

    def _hand_out(self, home: Gpu) -> None:
        slots: list[MemorySlot] = []
        with self._recorder.span(self._plan.task, home, home.compute):
            # in the members' order, whoever came last: the sum is the same to the last bit in every run
            total = self._plan.total([self._bring(number, home, slots) for number in sorted(self._values)])
            total = [part if part is None else _apart_from(slots, part) for part in total]
        # now, not behind the updates: the sum is enqueued, and nobody reads the members' copies behind it
        home.slots.give_back(slots)
        self._values.clear()
        for taker in self._takers:
            taker.put_from(home, total)

    def _bring(self, number: int, home: Gpu, slots: list[MemorySlot]) -> Sequence[Tensor | None]:
        """Return a member's value on the GPU that adds; the slots that it lies in are added to `slots`."""
        value, made = self._values[number]
        member = self._members[number]
        if member is home:
            return value
        moved = move([part for part in value if part is not None], member, home, made=made)
        home.compute.wait_event(moved.arrived)
        slots += moved.slots
        brought: Sequence[Tensor | None] = with_parts(tuple(value), moved.tensors)
        return brought


def _apart_from(slots: Sequence[MemorySlot], part: Tensor) -> Tensor:
    """Return a part of a total in memory of its own: where one member alone had a gradient, the total is what that one sent."""
    lent = {slot.tensor.data_ptr() for slot in slots if slot.tensor.numel()}
    return part.clone() if any(piece.data_ptr() in lent for piece in dense_parts([part])) else part


class _Member:
    """One member's end of a reduction."""

    def __init__(self, reduction: PeerReduction, number: int) -> None:
        self._reduction, self._number = reduction, number

    def put(self, value: Any) -> None:
        """Hand this member's value over."""
        self._reduction.add(self._number, value)


class Taker(Slot):
    """Where one replica finds the total, on its own GPU."""

    def __init__(self, wait_for: WaitFor, name: str, gpu: Gpu) -> None:
        super().__init__(wait_for, name)
        self._gpu = gpu
        self._move = _NOTHING

    def put_from(self, home: Gpu, total: Sequence[Tensor | None]) -> None:
        """Enqueue the copy of the total and hand it over."""
        # on the GPU that added, the total is read where it lies; all others get copies, in slots of theirs
        made = home.compute.record_event()
        if home is self._gpu:
            self._move = Copies([], [], made)
            self.put(total)
        else:
            self._move = move([part for part in total if part is not None], home, self._gpu, made=made)
            self.put(with_parts(tuple(total), self._move.tensors))

    def take(self) -> Any:
        """Return the total; the compute stream waits for its arrival."""
        value = super().take()
        self._gpu.compute.wait_event(self._move.arrived)
        return value

    def free(self) -> None:
        """Note that the update which reads the total is enqueued."""
        self._gpu.slots.give_back(self._move.slots)
        self._move = _NOTHING
