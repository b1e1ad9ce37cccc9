"""Streams without a GPU: what is enqueued runs at once, on the CPU, but only what events order counts as ordered.

Every stream has a vector clock. Memory remembers who wrote it last and who has read it since; whoever reads or writes it without
being ordered behind them is a race that a GPU might lose, and raises `RaceError`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from executor.workers.cuda.driver import GpuStream

Clock = dict[int, int]
"""By stream: how much of its work is known to be done."""


class RaceError(AssertionError):
    """Two accesses of one piece of memory that nothing orders."""


class PlainEvent:
    """A point in a stream; done at the second look, as if the GPU were a little behind, or if a later one is known to be done."""

    def __init__(self, machine: Machine, timing: bool) -> None:
        self.clock: Clock = {}
        self._stream = 0
        self.time_s = 0.0
        self._machine, self._timing, self._looks = machine, timing, 0

    def put(self, clock: Clock, stream: int) -> None:
        self.clock, self._stream, self.time_s, self._looks = dict(clock), stream, perf_counter(), 0

    def query(self) -> bool:
        self._looks += 1
        with self._machine.lock:
            if self._looks == 1 and self._machine.host.get(self._stream, 0) < self.clock.get(self._stream, 0):
                return False
            merge(self._machine.host, self.clock)
        return True

    def elapsed_time(self, end_event: Any, /) -> float:
        assert self._timing
        assert end_event._timing
        return float((end_event.time_s - self.time_s) * 1e3)


def merge(clock: Clock, other: Clock) -> None:
    for stream, count in other.items():
        clock[stream] = max(clock.get(stream, 0), count)


class PlainStream:
    """A stream of one GPU."""

    def __init__(self, machine: Machine, number: int, device: torch.device) -> None:
        self.number, self.device, self._machine = number, device, machine
        self.clock: defaultdict[int, int] = defaultdict(int)

    def record_event(self, event: Any = None, /) -> Any:
        event = self._machine.event() if event is None else event
        self._machine.bind_thread()
        with self._machine.lock:
            self.clock[self.number] += 1
            event.put(self.clock, self.number)
        return event

    def wait_event(self, event: Any, /) -> None:
        with self._machine.lock:
            merge(self.clock, event.clock)


def plain(stream: GpuStream) -> PlainStream:
    """Return a stream of a GPU that is not there as what it is."""
    assert isinstance(stream, PlainStream)
    return stream


@dataclass
class Access:
    """Who wrote a piece of memory last, and who has read it since, as (stream, count)."""

    write: tuple[int, int] | None = None
    reads: dict[int, int] = field(default_factory=dict)
    version: int = 0


class Machine:
    """A driver of GPUs that are not there."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.host: Clock = {}
        """What the host knows to be done: it is ordered before whatever is enqueued later."""
        self.num_allocated = 0
        self._memory: dict[int, Access] = defaultdict(Access)
        self._num_streams = 0
        self._local = threading.local()
        self.num_closed = 0
        """How often a GPU was let go of."""
        self.num_given_back = 0
        """How often unused memory was given back."""

    def stream(self, device: torch.device) -> PlainStream:
        assert device.type == "cuda"
        with self.lock:
            self._num_streams += 1
            return PlainStream(self, self._num_streams, device)

    def default_stream(self, device: torch.device) -> PlainStream:
        return self.stream(device)

    def memory(self, device: torch.device) -> torch.device:
        assert device.type == "cuda"
        return torch.device("cpu")

    def name(self, device: torch.device) -> str:
        return f"simulated {device}"

    def identity(self, device: torch.device) -> str:
        return f"the card of {device}"

    def event(self, *, timing: bool = False) -> PlainEvent:
        return PlainEvent(self, timing)

    @contextmanager
    def current(self, *streams: Any) -> Iterator[None]:
        before = getattr(self._local, "streams", ())
        self._local.streams = streams
        yield
        self._local.streams = before

    def copy(self, target: Tensor, source: Tensor) -> None:
        receiver, sender = self._local.streams
        with self.lock:
            if receiver.device != sender.device:  # so torch orders copies between GPUs
                merge(sender.clock, receiver.clock)
            self.read(source, sender)
            self.write(target, sender)
            if receiver.device != sender.device:
                merge(receiver.clock, sender.clock)
        target.copy_(source)

    def empty(self, like: Tensor, device: torch.device) -> Tensor:
        assert device.type == "cuda"
        self.num_allocated += 1
        return torch.full_like(like, torch.nan) if like.is_floating_point() else torch.empty_like(like)

    def used_on(self, tensor: Tensor, stream: GpuStream) -> None:
        pass

    def reset_peaks(self, device: torch.device) -> None:
        pass

    def peaks(self, device: torch.device) -> tuple[int, int]:
        return 1 + device.index, 2 + 2 * device.index

    def give_back(self) -> None:
        self.num_given_back += 1

    def close(self) -> None:
        self.num_closed += 1

    def bind_thread(self) -> None:
        """Give this thread a context, as the first call of CUDA's runtime does that needs one."""
        self._local.has_context = True

    def has_context(self) -> bool:
        """Whether cuBLAS would find a context in this thread; it warns where there is none."""
        return getattr(self._local, "has_context", False)

    def read(self, tensor: Tensor, stream: GpuStream) -> int:
        """Read in a stream; return how often the memory had been written."""
        stream = plain(stream)
        with self.lock:
            access = self._accessed(tensor, stream)
            access.reads[stream.number] = stream.clock[stream.number]
            return access.version

    def write(self, tensor: Tensor, stream: GpuStream) -> None:
        """Write in a stream."""
        stream = plain(stream)
        with self.lock:
            access = self._accessed(tensor, stream)
            for reader, count in access.reads.items():
                if stream.clock[reader] < count:
                    raise RaceError(f"stream {stream.number} writes what stream {reader} may still read")
            access.write, access.reads = (stream.number, stream.clock[stream.number]), {}
            access.version += 1

    def _accessed(self, tensor: Tensor, stream: PlainStream) -> Access:
        stream.clock[stream.number] += 1
        merge(stream.clock, self.host)
        access = self._memory[tensor.untyped_storage().data_ptr()]
        if access.write is not None and stream.clock[access.write[0]] < access.write[1]:
            raise RaceError(f"stream {stream.number} uses what stream {access.write[0]} may not have written yet")
        return access
