"""The GPU of a process that trains with others: each computes on its own of its host's.

    compute   the stream of the thread that runs the device's tasks; the host waits for it at the end of each, so that a task's
              span is its own, and what it hands over is there
    lanes     share another stream, or NCCL would wait for the task that runs while something is sent; it never has to wait itself:
              the host looks whether NCCL is done

Written from the documentation of torch.distributed; NCCL has not been run here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from executor.home import Home
from executor.run.clock import Recorder
from executor.run.ring import RingRecorder
from executor.workers.cuda.driver import TorchDriver, visible_gpus
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.distributed.meeting.start import Participant
from executor.workers.distributed.messages.codec import tensors_of
from executor.workers.environment import process_number
from schedir.errors import RefusedError

ERROR_HANDLING = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
"""0 lets torch's NCCL only report errors; else its watchdog ends a process whose peer dies before that one can say why."""


def own_gpu(stages: Sequence[nn.Module], *, timeout_s: float) -> OwnGpu | None:
    """Return the GPU that this process computes on; None for a model that lies on the CPU."""
    if not any(parameter.is_cuda for stage in stages for parameter in stage.parameters()):
        return None
    gpus = visible_gpus("distributed", 1)
    # here, before there are threads that read variables; whoever has set it wants it so
    os.environ.setdefault(ERROR_HANDLING, "0")
    return OwnGpu(Gpu(gpus[_own_number(len(gpus))], TorchDriver()), Patience(timeout_s))


def _own_number(visible: int) -> int:
    """Return the number of this process's GPU among those that it sees.

    SLURM and others show every process one card, its own, which is number 0 then. torchrun shows all of a host's cards to all of
    its processes, and numbers these. Whoever does neither has as many processes as cards on each host, or `check_apart` finds out.
    """
    return 0 if visible == 1 else int(os.environ.get("LOCAL_RANK", process_number())) % visible


def check_apart(members: Sequence[Participant]) -> None:
    """Raise RefusedError if two processes would compute on one GPU: NCCL connects no two that do."""
    found: dict[str, Participant] = {}
    for member in members:
        if member.gpu and found.setdefault(member.gpu, member) is not member:
            raise RefusedError(
                f"{found[member.gpu]} and {member} would both compute on the GPU {member.gpu}, and NCCL does not connect a GPU "
                "with itself: start one process per GPU of a host, with LOCAL_RANK 0, 1, … or one visible GPU each, or leave the "
                "model on the CPU"
            )


class OwnGpu:
    """One process's GPU."""

    def __init__(self, gpu: Gpu, patience: Patience) -> None:
        self._gpu, self._patience = gpu, patience
        self._computing = 0
        """The thread that runs the device's tasks; 0 as long as it has not begun."""
        self.home = Home(gpu.driver.memory(gpu.device), claim=gpu.claim, hand_back=gpu.hand_back)
        """Where the device's tensors live."""
        self.identity = gpu.driver.identity(gpu.device)
        """The card, whatever number this process sees it under."""

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
        with gpu.driver.current(gpu.send):
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
        for tensor in tensors_of(value):
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
