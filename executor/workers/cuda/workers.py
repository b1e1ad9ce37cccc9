"""The workers themselves: a thread per GPU enqueues its tasks, far ahead of the GPU, and the host waits once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch

from executor.home import Home
from executor.workers.base import Exchange, ExchangePlan, Fence
from executor.workers.cuda.clock import CudaRecorder
from executor.workers.cuda.driver import Event
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.marks import Mark
from executor.workers.cuda.patience import Patience
from executor.workers.cuda.ports import PeerChannel, PeerReduction
from executor.workers.ports import Reduction
from executor.workers.threads import INTERRUPTED_S, ThreadWorkers
from schedir.errors import ArgumentError, RunError
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class GpuFence:
    """An event on a GPU's compute stream."""

    event: Event
    mark: Mark

    def passed_at(self) -> float | None:
        """Return when the GPU came to it."""
        return self.mark.host_time(self.event) * 1e-9 if self.event.query() else None


class CudaWorkers(ThreadWorkers):
    """One GPU per device of the graph."""

    recorder: CudaRecorder

    def __init__(self, graph: TaskGraph, gpus: Sequence[Gpu], *, recorder: CudaRecorder, timeout_s: float) -> None:
        """`gpus` has the GPU of every device of the graph, each a GPU, or a share of one, of its own."""
        if len(gpus) != graph.program.num_devices:
            raise ArgumentError(
                f"the graph has {graph.program.num_devices} devices for {len(gpus)} GPUs: let its devices take turns first"
            )
        self._gpus = tuple(gpus)
        self._patience = Patience(timeout_s)
        self.is_open = True
        """The streams may still be used."""
        super().__init__(graph.program.num_devices, recorder, timeout_s=timeout_s)

    def home(self, device: int) -> Home:
        """Return a GPU's memory; what others send lies in slots, which are used again."""
        gpu = self._gpus[device]
        return Home(gpu.driver.memory(gpu.device), lends=True, claim=gpu.claim, hand_back=gpu.hand_back)

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> PeerChannel:
        """Return the port of a transfer."""
        sender, receiver = (self._gpus[device] for device in ends)
        return PeerChannel(self.wait_for, name, task=task, ends=(sender, receiver), recorder=self.recorder)

    def exchange(self, plan: ExchangePlan) -> Exchange:
        """Return the ports of a reduction; plain values of the host are put together there."""
        if plan.plain:
            return Reduction(self.wait_for, plan, self.recorder)
        return PeerReduction(self.wait_for, plan, gpus=self._gpus, recorder=self.recorder)

    @contextmanager
    def surroundings(self, device: int) -> Iterator[None]:
        """Compute on the GPU's compute stream, and differentiate in this very thread, so that both are enqueued in order."""
        gpu = self._gpus[device]
        self.recorder.enter(gpu)
        # CUDA binds a thread to its GPU's context at the first call that needs one. cuBLAS is none of those and warns where there
        # is no context yet; an event is.
        gpu.compute.record_event()
        with gpu.driver.current(gpu.compute), torch.autograd.set_multithreading_enabled(False):
            yield

    def follow(self) -> None:
        """Let the compute streams wait for what the caller's thread has enqueued; nobody waits here."""
        self.recorder.align_now_and_then()
        for gpu in self._gpus:
            gpu.slots.begin_step()
            gpu.follow()

    def fence(self, device: int) -> Fence:
        """Return an event on the device's compute stream."""
        gpu = self._gpus[device]
        event = gpu.driver.event(timing=True)
        gpu.compute.record_event(event)
        return GpuFence(event, self.recorder.newest_mark(gpu))

    def reset_peaks(self) -> None:
        """Begin to watch the peaks of all GPUs' memory."""
        for gpu in self._gpus:
            gpu.driver.reset_peaks(gpu.device)

    def peaks(self) -> list[dict[str, int]]:
        """Return the most bytes of every GPU that were allocated and reserved since then."""
        found = (gpu.driver.peaks(gpu.device) for gpu in self._gpus)
        return [{"allocated_bytes": allocated, "reserved_bytes": reserved} for allocated, reserved in found]

    def run(self, work: Sequence[Callable[[], None]]) -> None:
        """Enqueue one callable per GPU, then wait for all GPUs; raise the first error, or RunError naming who did not end."""
        # what the caller has put on the GPUs (weights, data) is there before the first span
        for gpu in self._gpus:
            self._patience.await_event(gpu.driver.default_stream(gpu.device).record_event(), f"the default stream of {gpu}")
        self.recorder.align()
        try:
            super().run(work)
        except BaseException:
            with suppress(RuntimeError, RunError):  # whatever a GPU says to that, the first error is the one to raise
                self._await_streams(Patience(INTERRUPTED_S))  # what is freed now may still be read, or written to
            raise
        self._await_streams(self._patience)

    def close(self) -> None:
        """End the threads; let go of the GPUs, once all streams have ended. A GPU that hangs or has failed keeps what it has."""
        super().close()
        if not self.is_open or self._gave_up:
            return
        with suppress(RuntimeError, RunError):
            self._await_streams(Patience(INTERRUPTED_S))
            self.recorder.align()  # the last spans lie between two marks
            self.is_open = False
            for gpu in self._gpus:
                gpu.close()

    def _await_streams(self, patience: Patience) -> None:
        for gpu in self._gpus:
            for name, stream in gpu.working:
                patience.await_event(stream.record_event(), f"the {name} stream of {gpu}")
            gpu.let_go()
