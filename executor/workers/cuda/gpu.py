"""One GPU: its streams, the memory that messages arrive in, and what must not be freed yet.

    compute ── F ── B ── …                    send: waits for what compute has made, copies it into a slot of the receiver
    receive: stands for this GPU where torch orders a copy with both ends, so that compute is free of it; one for each sender, or a
             copy would wait for all that other senders have been told to send
    clock: is empty but for the marks that tell this GPU's time; slots are made there

Torch has POOL streams and hands them out in turn, to whoever asks: so each that is taken is looked at, whether it is one already.

The host enqueues far ahead of the GPU. Memory that a stream other than compute reads is therefore held until an event says that
the copy is done; a slot is used again behind the event of its last reader.
"""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.workers.cuda.driver import Driver, Event, GpuStream
from schedir.errors import SchedirWarning

POOL = 32
"""Streams that torch has for a GPU, of one priority. Source: c10/cuda/CUDAStream.h."""


class Gpu:
    """A GPU that runs one device's tasks."""

    def __init__(self, device: torch.device, driver: Driver) -> None:
        self.device, self.driver = device, driver
        self._streams: list[GpuStream] = []
        """All of its own; two names for one stream are equal."""
        self.compute, self.send, self.clock = (self._new_stream() for _ in range(3))
        self._receive: dict[Gpu, GpuStream] = {}
        """By sender."""
        self.slots = Slots(self)
        self._held: deque[tuple[Event, object]] = deque()
        self._holding = threading.Lock()

    def receive(self, sender: Gpu) -> GpuStream:
        """Return the stream on which copies from a sender arrive."""
        with self._holding:
            if sender not in self._receive:
                self._receive[sender] = self._new_stream()
            return self._receive[sender]

    def _new_stream(self) -> GpuStream:
        """Return a stream that stands for nothing else here; a sender's once more, with a warning, where torch has no other."""
        for _ in range(POOL):
            stream = self.driver.stream(self.device)
            if stream not in self._streams:
                self._streams.append(stream)
                return stream
        *_, shared = self._streams
        warnings.warn(
            f"{self} receives from {len(self._receive) + 1} GPUs, and torch has {POOL} streams for all that it does: some "
            "copies wait for each other, which changes nothing but the time",
            SchedirWarning,
            stacklevel=2,
        )
        return shared

    @property
    def working(self) -> list[tuple[str, GpuStream]]:
        """The streams that something may be enqueued on, by what they do."""
        with self._holding:
            arriving = list(self._receive.values())
        return [("compute", self.compute), ("send", self.send), *(("receive", stream) for stream in arriving)]

    def hold(self, value: object, *, until: Event) -> None:
        """Keep a value alive until an event is done; let go of those whose events are."""
        with self._holding:
            self._held.append((until, value))
            # events of the sending stream come to pass in their order: the first that has not ends the search
            while self._held and self._held[0][0].query():
                self._held.popleft()

    def let_go(self) -> None:
        """Forget all that was held: the streams have ended."""
        with self._holding:
            self._held.clear()

    def close(self) -> None:
        """Let go of all memory and of what was made for the streams, which have ended and are not used again."""
        self.let_go()
        self.slots.clear()
        self.driver.close()

    def follow(self) -> None:
        """Let compute wait for what this thread has put into the GPU's default stream: data, weights that were moved or loaded."""
        self.compute.wait_event(self.driver.default_stream(self.device).record_event())

    def claim(self, tensor: Tensor) -> None:
        """Hear of memory made on another stream: freed while compute may still read it, it is not used again before that has."""
        self.driver.used_on(tensor, self.compute)

    def hand_back(self, tensor: Tensor) -> None:
        """Hear that memory made on compute is the caller's from now on, who works on the default stream."""
        self.driver.used_on(tensor, self.driver.default_stream(self.device))

    def __str__(self) -> str:
        return str(self.device)


Form = tuple[torch.Size, torch.dtype, tuple[int, ...]]
"""Shape, type and strides of what is sent."""


@dataclass(slots=True, eq=False)
class MemorySlot:
    """A place on a GPU that a tensor of one form is copied into."""

    tensor: Tensor
    form: Form
    free: tuple[Event, ...] = ()
    """Nobody reads it behind these."""


UNUSED_STEPS = 8
"""A form that no step has sent for so long gives its slots up: shapes may change from step to step."""


class Slots:
    """The slots of one GPU; each is used again once its last reader is done."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._free: dict[Form, deque[MemorySlot]] = defaultdict(deque)
        self._last_used: dict[Form, int] = {}
        """By form: the last step that took one."""
        self._step = 0
        self._lock = threading.Lock()

    def take(self, like: Tensor) -> MemorySlot:
        """Return a slot for a tensor, the one that has been free for longest, or a new one."""
        form = (like.shape, like.dtype, like.stride())
        with self._lock:
            self._last_used[form] = self._step
            if self._free[form]:
                return self._free[form].popleft()
        # made on a stream that never has work of ours: torch would give memory which a copy has left on any other to a new slot,
        # though that copy may not have run yet. Torch's streams are not ours alone, so the first copy waits for this one, too.
        with self._gpu.driver.current(self._gpu.clock):
            made = self._gpu.driver.empty(like, self._gpu.device)
        return MemorySlot(made, form, free=(self._gpu.clock.record_event(),))

    def begin_step(self) -> None:
        """Free the slots of forms that have not been used for some steps, as far as they are read."""
        with self._lock:
            self._step += 1
            for form in [form for form, last in self._last_used.items() if last < self._step - UNUSED_STEPS]:
                left = [slot for slot in self._free[form] if not all(event.query() for event in slot.free)]
                self._free[form] = deque(left)
                if not left:
                    del self._free[form], self._last_used[form]

    def clear(self) -> None:
        """Forget all slots that nobody has: the streams have ended."""
        with self._lock:
            self._free.clear()
            self._last_used.clear()

    def give_back(self, slots: Sequence[MemorySlot]) -> None:
        """Take slots back that nobody reads behind what is enqueued now: computing, or sending what is a view of one."""
        # one pair of events for all of a message's slots; whoever takes one of them makes its copy wait for both
        behind = (self._gpu.compute.record_event(), self._gpu.send.record_event())
        with self._lock:
            for slot in slots:
                slot.free = behind
                self._free[slot.form].append(slot)
