"""The calls of torch.cuda that these workers need: the one module that only a GPU can prove.

Everything beside it sees the protocols `GpuStream`, `Event` and `Driver`, and runs in the tests against streams without a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from executor.workers.cuda.sparse import dense_parts
from schedir.errors import RefusedError


class Event(Protocol):
    """A point in a stream's order."""

    def query(self) -> bool:
        """Say whether everything before it is done."""
        ...

    def elapsed_time(self, end_event: Any, /) -> float:
        """Return the milliseconds from this to a later event of the same GPU; both are done and have times."""
        ...


class GpuStream(Protocol):
    """Work of one GPU that runs in order."""

    def record_event(self, event: Any = None, /) -> Any:
        """Put an event behind all that was enqueued, and return it."""
        ...

    def wait_event(self, event: Any, /) -> None:
        """Let what is enqueued later wait for an event, of any GPU."""
        ...


class Driver(Protocol):
    """What the workers ask of the hardware."""

    def stream(self, device: torch.device) -> GpuStream:
        """Return a new stream."""
        ...

    def default_stream(self, device: torch.device) -> GpuStream:
        """Return the stream on which the caller has worked so far."""
        ...

    def memory(self, device: torch.device) -> torch.device:
        """Return where tensors of a GPU are made."""
        ...

    def name(self, device: torch.device) -> str:
        """Return what a GPU is called."""
        ...

    def identity(self, device: torch.device) -> str:
        """Return what tells a GPU from all others, whatever number a process sees it under."""
        ...

    def event(self, *, timing: bool = False) -> Event:
        """Return a new event."""
        ...

    def current(self, *streams: GpuStream) -> AbstractContextManager[object]:
        """Make them the current streams of their GPUs, and the last one's GPU the current one."""
        ...

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Enqueue a copy on the current stream of the source's GPU, the current stream of the target's ordered behind it."""
        ...

    def empty(self, like: Tensor, device: torch.device) -> Tensor:
        """Return new memory."""
        ...

    def used_on(self, tensor: Tensor, stream: GpuStream) -> None:
        """Say that a stream uses a tensor's memory, which was made on another: once freed it waits for that stream."""
        ...

    def reset_peaks(self, device: torch.device) -> None:
        """Begin to watch the peak of a GPU's memory."""
        ...

    def peaks(self, device: torch.device) -> tuple[int, int]:
        """Return the most bytes that were allocated, and that were reserved, since then."""
        ...

    def give_back(self) -> None:
        """Give memory back that is kept for streams, but that nothing lies in."""
        ...

    def close(self) -> None:
        """End what was made for these streams only; all of them have ended, and are not used again."""
        ...


class TorchDriver:
    """The real thing."""

    def stream(self, device: torch.device) -> GpuStream:
        """Return a new stream; it does not wait for the default stream."""
        stream: GpuStream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # so in torch
        return stream

    def default_stream(self, device: torch.device) -> GpuStream:
        """Return the caller's current stream."""
        stream: GpuStream = torch.cuda.current_stream(device)
        return stream

    def memory(self, device: torch.device) -> torch.device:
        """Return the GPU itself."""
        return device

    def name(self, device: torch.device) -> str:
        """Return what a GPU is called."""
        return torch.cuda.get_device_name(device)

    def identity(self, device: torch.device) -> str:
        """Return a GPU's UUID."""
        return str(torch.cuda.get_device_properties(device).uuid)

    def event(self, *, timing: bool = False) -> Event:
        """Return a new event, which has a time only if asked for (an event without is cheaper to wait for)."""
        event: Event = torch.cuda.Event(enable_timing=timing)  # type: ignore[no-untyped-call]  # so in torch
        return event

    @contextmanager
    def current(self, *streams: GpuStream) -> Iterator[None]:
        """Make them the current streams of their GPUs, and the last one's GPU the current one."""
        with ExitStack() as contexts:
            for stream in streams:
                contexts.enter_context(torch.cuda.stream(stream))  # type: ignore[arg-type]  # a torch.cuda.Stream
            yield

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Enqueue a copy. Between GPUs torch runs it on the source's current stream, and makes the target's wait for it."""
        target.copy_(source, non_blocking=True)

    def empty(self, like: Tensor, device: torch.device) -> Tensor:
        """Return new memory with the shape, type and strides of a tensor."""
        return torch.empty_like(like, device=device)

    def used_on(self, tensor: Tensor, stream: GpuStream) -> None:
        """Tell torch's allocator, which knows only the stream that memory was made on; other devices are not its matter."""
        if isinstance(stream, torch.cuda.Stream) and tensor.device == stream.device:
            for part in dense_parts([tensor]):  # a sparse tensor has no memory of its own to speak of
                part.record_stream(stream)

    def reset_peaks(self, device: torch.device) -> None:
        """Begin to watch the peak of a GPU's memory."""
        torch.cuda.reset_peak_memory_stats(device)

    def peaks(self, device: torch.device) -> tuple[int, int]:
        """Return the most bytes that were allocated, and that were reserved, since then."""
        return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)

    def give_back(self) -> None:
        """Empty torch's cache: what it keeps for a stream no other stream can use, and every training has streams of its own."""
        torch.cuda.empty_cache()

    def close(self) -> None:
        """Do nothing: the streams are torch's, which keeps them."""


def visible_gpus(kind: str, num_devices: int) -> tuple[torch.device, ...]:
    """Return all GPUs that this process may use; raise RefusedError if there is none for the devices of a graph."""
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "torch finds no driver, or was built without CUDA" if visible is None else f"CUDA_VISIBLE_DEVICES={visible}"
        raise RefusedError(f"workers '{kind}' need up to {num_devices} GPUs, 0 are visible ({why}): use workers 'threads'")
    return tuple(torch.device("cuda", number) for number in range(torch.cuda.device_count()))
