"""The GPU of a process that trains with others: each computes on its own of its host's.

    compute   the stream of the thread that runs the device's tasks; the host waits for it at the end of each, so that a task's
              span is its own, and what it hands over is there
    lanes     each has a stream of its own, or NCCL would wait for the task that runs while something is sent

Written from the documentation of torch.distributed; NCCL has not been run here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from executor.boundary import Message
from executor.home import Home
from executor.run.clock import Recorder
from executor.run.ring import RingRecorder
from executor.workers.cuda.driver import TorchDriver, visible_gpus
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.environment import processes_here
from schedir.errors import RefusedError


def own_gpu(stages: Sequence[nn.Module], *, timeout_s: float) -> OwnGpu | None:
    """Return the GPU that this process computes on; None for a model that lies on the CPU.

    Raises RefusedError if the processes of this host outnumber its GPUs: NCCL connects no two that share one.
    """
    if not any(parameter.is_cuda for stage in stages for parameter in stage.parameters()):
        return None
    gpus, count = visible_gpus("distributed", processes_here()), processes_here()
    if count > len(gpus):
        raise RefusedError(
            f"the model is on a GPU, but {count} processes share {len(gpus)} of this host, and NCCL needs one for each: start "
            "fewer, or leave the model on the CPU"
        )
    device = gpus[int(os.environ.get("LOCAL_RANK", "0")) % len(gpus)]
    return OwnGpu(Gpu(device, TorchDriver()), Patience(timeout_s))


class OwnGpu:
    """One process's GPU."""

    def __init__(self, gpu: Gpu, patience: Patience) -> None:
        self._gpu, self._patience = gpu, patience
        self._computing = 0
        """The thread that runs the device's tasks; 0 as long as it has not begun."""
        self.home = Home(gpu.driver.memory(gpu.device), claim=gpu.claim, hand_back=gpu.hand_back)
        """Where the device's tensors live."""

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Run the device's tasks inside, and differentiate in this very thread."""
        gpu, self._computing = self._gpu, threading.get_ident()
        gpu.compute.record_event()  # gives the thread its GPU's context
        with gpu.driver.current(gpu.compute), torch.autograd.set_multithreading_enabled(False):
            yield

    @contextmanager
    def lane(self) -> Iterator[None]:
        """Serve one end of a lane inside."""
        gpu = self._gpu
        with gpu.driver.current(gpu.driver.stream(gpu.device)):
            yield

    def settle(self) -> None:
        """Wait for all that the computing thread has enqueued, if this is it."""
        if threading.get_ident() == self._computing:
            self._patience.await_event(self._gpu.compute.record_event(), f"the compute stream of {self._gpu}")

    def await_caller(self) -> None:
        """Wait for what the caller's thread has enqueued: data, weights that were moved or loaded."""
        stream = self._gpu.driver.default_stream(self._gpu.device)
        self._patience.await_event(stream.record_event(), f"the default stream of {self._gpu}")

    def claim(self, value: object) -> None:
        """Hear of a value that a lane has received: freed while a task may still read it, its memory waits for that task."""
        inside = value.tensors if isinstance(value, Message) else value if isinstance(value, list | tuple) else (value,)
        for tensor in inside:
            if isinstance(tensor, Tensor):
                self._gpu.claim(tensor)


class _Settling(Recorder):
    """Lets the GPU end what comes before each look at the clock."""

    def __init__(self, size: int, gpu: OwnGpu) -> None:
        super().__init__(size)
        self._gpu = gpu

    def begin(self, task: int) -> None:
        """Record that a task starts now."""
        self._gpu.settle()
        super().begin(task)

    def finish(self, task: int) -> None:
        """Record that a task ends now."""
        self._gpu.settle()
        super().finish(task)


class GpuRecorder(_Settling):
    """Start and end of every task of a pass, of this process's GPU."""


class GpuRingRecorder(_Settling, RingRecorder):
    """The same of the newest tasks of an endless row."""
